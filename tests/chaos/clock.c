/* The wall clock of a process, moved by as many seconds as a file says; the clocks that only run are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long moved(void) {
  const char *name = getenv("CLOCK_OFFSET_FILE");
  char said[32];
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  ssize_t size = read(file, said, sizeof said - 1);
  close(file);
  if (size <= 0) return 0;
  said[size] = 0;
  return atol(said);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += moved();
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec told;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &told);
  now->tv_sec = told.tv_sec;
  now->tv_usec = told.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *place) {
  struct timespec told;
  clock_gettime(CLOCK_REALTIME, &told);
  if (place) *place = told.tv_sec;
  return told.tv_sec;
}

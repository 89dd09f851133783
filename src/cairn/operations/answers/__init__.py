"""What operations answer, over HTTP and with `--json`: one class per shape, each field with words and an example.

One module per room, named like the room that answers with it. These classes describe; nothing is made of them at run
time. An answer may carry more fields than are named here.
"""

"""Starts moto (SQS and DynamoDB) on a free port of the loopback address and prints where it listens, as a
shell assignment. It ends with its input.

One request at a time: moto makes room for a cancelled transaction by putting whole tables back as they
were, and would undo what others wrote meanwhile.
"""

import logging
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"ACKLAST_MOTO_URL=http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()

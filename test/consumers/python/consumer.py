"""A consumer of the envelope in Python: python3 consumer.py <envelope.schema.json> <database URL> < one body per line

Validates each body with the JSON Schema, and records it in the transaction that has its effect. Writes one result per line.
"""

import json
import re
import subprocess
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

TYPES = {"object": dict, "string": str, "integer": int, "null": type(None)}


def is_valid(schema, value):
    """The keywords that the schema of the envelope uses, for a Python without jsonschema."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, TYPES[name]) and not isinstance(value, bool) for name in types):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0) or not re.search(schema.get("pattern", ""), value):
            return False
    if isinstance(value, int) and value < schema.get("minimum", value):
        return False
    if isinstance(value, dict):
        if any(name not in value for name in schema.get("required", [])):
            return False
        return all(is_valid(part, value[name]) for name, part in schema.get("properties", {}).items() if name in value)
    return True


def book(database, event):
    """Books the event unless it is recorded: one transaction."""
    script = """
        begin;
        select postcommit.record_processed('billing', :'id') as is_new \\gset
        \\if :is_new
        insert into booked (event_id, total) values (:'id', :'total');
        \\endif
        commit;
        \\echo :is_new
    """
    settings = ["-v", "ON_ERROR_STOP=1", "-v", "id=" + event["eventId"], "-v", "total=%d" % event["data"]["total"]]
    command = ["psql", "-X", "-q", *settings, database]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=True)
    return done.stdout.strip() == "t"


def main(schema_path, database):
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    validator = Draft202012Validator(schema) if Draft202012Validator else None
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except ValueError:
            print("invalid", flush=True)
            continue
        # Both, so that the short one is tested where jsonschema is there.
        verdicts = {is_valid(schema, event)} | ({validator.is_valid(event)} if validator else set())
        if verdicts != {True}:
            print("invalid" if verdicts == {False} else "the validators disagree", flush=True)
            continue
        print("processed" if book(database, event) else "duplicate", flush=True)


main(*sys.argv[1:])

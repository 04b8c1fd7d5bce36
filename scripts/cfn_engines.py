"""Creates the stack in moto's CloudFormation, an engine that is independent of the CDK and of the
embedded AWS, and checks that what must exist does, with the right attributes.

usage: cfn_engines.py TEMPLATE        run by scripts/cfn-engines.sh, which installs moto

The server runs in this process, on a free port of the loopback address; nothing leaves the machine.
"""

import io
import json
import logging
import re
import sys
import zipfile

import boto3
from moto.server import ThreadedMotoServer

REGION = "eu-central-1"
DAY = 24 * 3600
passed, failed = 0, 0


def check(what, got, want):
    global passed, failed
    if got == want:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {what}: got {got!r}, want {want!r}")


def stub_assets(template, client):
    """Puts a stub where each function's code would have been uploaded, as `cdk deploy` does."""
    stub = io.BytesIO()
    with zipfile.ZipFile(stub, "w") as archive:
        archive.writestr("bootstrap", "#!/bin/sh\n")
    account = client("sts").get_caller_identity()["Account"]
    s3 = client("s3")
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            code = resource["Properties"]["Code"]
            bucket = code["S3Bucket"]["Fn::Sub"].replace("${AWS::AccountId}", account).replace("${AWS::Region}", REGION)
            if bucket not in [b["Name"] for b in s3.list_buckets()["Buckets"]]:
                s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
            s3.put_object(Bucket=bucket, Key=code["S3Key"], Body=stub.getvalue())
    # The version of the bootstrap stack, which the template asks for.
    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")


# What moto's CloudFormation does not know. It skips these resources, and what refers to them gets
# nothing: a policy about an alias has no resource, which IAM refuses, a permission to invoke an alias finds none,
# and the dashboard, which lists the alarms, fails on the first. They are left out here. Of what it does know it ignores a table's TTL and
# point-in-time recovery, a queue's redrive allow policy and a function's processor. The tests of infra/
# cover all of it.
UNKNOWN_TO_MOTO = (
    "AWS::SQS::QueuePolicy", "AWS::Lambda::Alias", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission",
    "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard",
)


def for_moto(template):
    """Returns the template with aliases named by their ARN: a policy that refers to a resource which moto
    skipped would have no resource at all, and moto refuses that."""
    resources = template["Resources"]

    def rewrite(value):
        if isinstance(value, dict):
            target = resources.get(value.get("Ref"), {})
            if len(value) == 1 and target.get("Type") == "AWS::Lambda::Alias":
                function = resources[target["Properties"]["FunctionName"]["Ref"]]["Properties"]["FunctionName"]
                return {"Fn::Sub": "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:"
                                   + function + ":" + target["Properties"]["Name"]}
            return {key: rewrite(one) for key, one in value.items()}
        return [rewrite(one) for one in value] if isinstance(value, list) else value

    known = {name: rewrite(r) for name, r in resources.items() if r["Type"] not in UNKNOWN_TO_MOTO}
    # Without the alias, a mapping can only feed the function itself.
    worker = next(r["Properties"]["FunctionName"] for r in known.values()
                  if r["Type"] == "AWS::Lambda::Function" and r["Properties"]["FunctionName"].endswith("-worker"))
    for r in known.values():
        if r["Type"] == "AWS::Lambda::EventSourceMapping":
            r["Properties"]["FunctionName"] = worker
    return {**template, "Resources": known}


def main(path):
    with open(path, encoding="utf-8") as file:
        template = json.load(file)
    stack = re.sub(r"\.template\.json$", "", path.rsplit("/", 1)[-1])

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()

    def client(service):
        return boto3.client(service, region_name=REGION, endpoint_url=f"http://{host}:{port}",
                            aws_access_key_id="test", aws_secret_access_key="test")

    try:
        stub_assets(template, client)
        cfn = client("cloudformation")
        cfn.create_stack(StackName=stack, TemplateBody=json.dumps(for_moto(template)), Capabilities=["CAPABILITY_IAM"])
        description = cfn.describe_stacks(StackName=stack)["Stacks"][0]
        check("stack status", description["StackStatus"], "CREATE_COMPLETE")
        verify(stack, template, description, client)
    finally:
        server.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def keys(table):
    return [(k["AttributeName"], k["KeyType"]) for k in table["KeySchema"]]


def indexes(table):
    return {i["IndexName"]: (keys(i), i["Projection"]["ProjectionType"], sorted(i["Projection"].get("NonKeyAttributes", [])))
            for i in table.get("GlobalSecondaryIndexes", [])}


def verify(stack, template, description, client):
    outputs = {o["OutputKey"]: o["OutputValue"] for o in description["Outputs"]}
    check("outputs", sorted(outputs), sorted(template["Outputs"]))

    sqs = client("sqs")
    attributes = {}
    for name in ("source", "recovery", "dlq"):
        url = sqs.get_queue_url(QueueName=f"{stack}-{name}")["QueueUrl"]
        attributes[name] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    for name in ("source", "recovery"):
        a = attributes[name]
        check(f"{name} visibility", a["VisibilityTimeout"], "180")
        check(f"{name} retention", a["MessageRetentionPeriod"], str(4 * DAY))
        policy = json.loads(a["RedrivePolicy"])
        check(f"{name} DLQ", policy["deadLetterTargetArn"], attributes["dlq"]["QueueArn"])
        check(f"{name} maxReceiveCount", int(policy["maxReceiveCount"]), 20)
        check(f"{name} encryption", a.get("SqsManagedSseEnabled"), "true")
    check("dlq retention", attributes["dlq"]["MessageRetentionPeriod"], str(14 * DAY))

    dynamo = client("dynamodb")
    # What the tables should be is in the template: the kinds bring theirs.
    tables = {r["Properties"]["TableName"]: r["Properties"]
              for r in template["Resources"].values() if r["Type"] == "AWS::DynamoDB::Table"}
    check("tables", sorted(dynamo.list_tables()["TableNames"]), sorted(tables))
    check("own tables", {f"{stack}-ledger", f"{stack}-operations"} - set(tables), set())
    for name, wanted in tables.items():
        table = dynamo.describe_table(TableName=name)["Table"]
        check(f"{name} keys", keys(table), keys(wanted))
        check(f"{name} billing", table["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST")
        check(f"{name} indexes", indexes(table), indexes(wanted))

    functions = client("lambda")
    for name, timeout in (("worker", 30), ("redrive", 900)):
        f = functions.get_function_configuration(FunctionName=f"{stack}-{name}")
        check(f"{name} runtime", (f["Runtime"], f["Handler"]), ("provided.al2023", "bootstrap"))
        check(f"{name} size", (f["Timeout"], f["MemorySize"]), (timeout, 256))
        check(f"{name} stack", f["Environment"]["Variables"]["ACKLAST_STACK"], stack)
        check(f"{name} DLQ URL", f["Environment"]["Variables"]["ACKLAST_DLQ_URL"], outputs["DLQUrl"])
    mappings = functions.list_event_source_mappings()["EventSourceMappings"]
    check("mapped functions", {re.sub(r"^.*:function:", "", m["FunctionArn"]) for m in mappings}, {f"{stack}-worker"})
    check("mappings", sorted(m["EventSourceArn"] for m in mappings),
          sorted(attributes[name]["QueueArn"] for name in ("source", "recovery")))
    caps = {attributes["source"]["QueueArn"]: 50, attributes["recovery"]["QueueArn"]: 5}
    for m in mappings:
        lane = m["EventSourceArn"].rsplit("-", 1)[-1]
        check(f"{lane} batch", m["BatchSize"], 10)
        check(f"{lane} partial failures", m.get("FunctionResponseTypes"), ["ReportBatchItemFailures"])
        check(f"{lane} cap", m.get("ScalingConfig", {}).get("MaximumConcurrency"), caps[m["EventSourceArn"]])

    events = client("events")
    for rule in events.list_rules()["Rules"]:
        check(f"{rule['Name']} targets", [t["Arn"].rsplit(":", 2)[1:] for t in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]],
              [[f"{stack}-redrive", "operate"]])
    check("rules", len(events.list_rules()["Rules"]), sum(r["Type"] == "AWS::Events::Rule" for r in template["Resources"].values()))

    policies = client("iam").list_policies(Scope="Local")["Policies"]
    check("managed policies", len(policies), sum(r["Type"] == "AWS::IAM::ManagedPolicy" for r in template["Resources"].values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

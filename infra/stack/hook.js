// Invokes a new version of the worker with an event that is no job, and tells CodeDeploy whether it answered.
const { LambdaClient, InvokeCommand } = require("@aws-sdk/client-lambda");
const { CodeDeployClient, PutLifecycleEventHookExecutionStatusCommand } = require("@aws-sdk/client-codedeploy");

async function answers() {
  const answer = await new LambdaClient().send(
    new InvokeCommand({ FunctionName: process.env.VERSION, Payload: process.env.EVENT }));
  const said = Buffer.from(answer.Payload).toString();
  if (answer.FunctionError) throw new Error("the version failed: " + said);
  const failures = JSON.parse(said).batchItemFailures;
  if (!Array.isArray(failures) || failures.length !== 0) throw new Error("the version answered " + said);
}

exports.handler = async (event) => {
  let status = "Succeeded";
  try {
    await answers();
  } catch (error) {
    console.error(process.env.VERSION + " gets no traffic: " + error);
    status = "Failed";
  }
  await new CodeDeployClient().send(new PutLifecycleEventHookExecutionStatusCommand({
    deploymentId: event.DeploymentId, lifecycleEventHookExecutionId: event.LifecycleEventHookExecutionId, status,
  }));
};

// A small loop of Lambda's Runtime API, so that the embedded AWS can run the handler as it runs a bootstrap.
import http from 'node:http';
import { handler } from './handler.mjs';

const [host, port, ...path] = process.env.AWS_LAMBDA_RUNTIME_API.split(/[:/]/);
const base = `${['', ...path].join('/')}/2018-06-01/runtime/invocation`;
const agent = new http.Agent({ keepAlive: true });

function call(method, url, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host, port, method, path: url, agent }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(parts).toString() }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

for (;;) {
  const { headers, body } = await call('GET', `${base}/next`);
  const id = headers['lambda-runtime-aws-request-id'];
  const deadline = Number(headers['lambda-runtime-deadline-ms']);
  const context = {
    awsRequestId: id,
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: process.env.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: process.env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    invokedFunctionArn: headers['lambda-runtime-invoked-function-arn'] ?? '',
    getRemainingTimeInMillis: () => deadline - Date.now(),
  };
  try {
    await call('POST', `${base}/${id}/response`, JSON.stringify(await handler(JSON.parse(body), context)));
  } catch (error) {
    await call('POST', `${base}/${id}/error`, JSON.stringify({ errorType: error.name, errorMessage: error.message }));
  }
}

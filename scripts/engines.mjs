// Starts fauxqs (SQS) and dynalite (DynamoDB) on free ports of the loopback address and prints where they
// listen, as shell assignments. It ends with its input.
import { startFauxqs } from "fauxqs";
import dynalite from "dynalite";

const queues = await startFauxqs({ port: 0, logger: false });
const tables = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 });
await new Promise((listening, failed) => tables.once("error", failed).listen(0, "127.0.0.1", listening));

console.log(`ACKLAST_FAUXQS_URL=http://127.0.0.1:${queues.port}`);
console.log(`ACKLAST_DYNALITE_URL=http://127.0.0.1:${tables.address().port}`);
process.stdin.on("end", () => process.exit(0)).resume();

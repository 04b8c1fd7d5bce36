// Takes the alarms on metric math out of a synthesised stack, because MiniStack's CloudFormation refuses them.
//
// usage: node scripts/ministack-template.mjs FOLDER STACK
//
// FOLDER is what `cdk synth --output FOLDER` wrote. The changed template gets another asset hash: under its
// old one, a bucket that already holds the whole template would keep it.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder, stack] = process.argv.slice(2);
const path = (name) => join(folder, name);
const read = (name) => JSON.parse(readFileSync(path(name), "utf8"));
const write = (name, value) => writeFileSync(path(name), JSON.stringify(value, null, 1));

const templateFile = `${stack}.template.json`;
const template = read(templateFile);
const math = new Map(); // logical id → alarm's name
for (const [id, { Type, Properties }] of Object.entries(template.Resources)) {
	if (Type === "AWS::CloudWatch::Alarm" && Properties.Metrics) math.set(id, Properties.AlarmName);
}
// A reference to an alarm that is not there becomes the text that it would stand for.
const without = (value) => {
	if (Array.isArray(value)) return value.map(without);
	if (value === null || typeof value !== "object") return value;
	const attribute = value["Fn::GetAtt"];
	if (attribute && math.has(attribute[0])) return `arn:aws:cloudwatch:us-east-1:000000000000:alarm:${math.get(attribute[0])}`;
	if (math.has(value.Ref)) return math.get(value.Ref);
	return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, without(inner)]));
};
for (const id of math.keys()) delete template.Resources[id];
for (const resource of Object.values(template.Resources)) {
	if (resource.DependsOn) resource.DependsOn = [resource.DependsOn].flat().filter((id) => !math.has(id));
}
const changed = JSON.stringify(without(template), null, 1);
writeFileSync(path(templateFile), changed);

const assets = read(`${stack}.assets.json`);
const [oldHash] = Object.entries(assets.files).find(([, file]) => file.source.path === templateFile);
const newHash = createHash("sha256").update(changed).digest("hex");
const renamed = (value) => JSON.parse(JSON.stringify(value).replaceAll(oldHash, newHash));
write(`${stack}.assets.json`, renamed(assets));
write("manifest.json", renamed(read("manifest.json")));
console.log(`left out, because MiniStack knows no metric math: ${[...math.values()].sort().join(", ")}`);

// Replays AWS calls against the policies of a synthesised template. Every call must be allowed, and every action
// of every statement must be used by some call.
//
// usage: node check.mjs CALLS TEMPLATE [SETTING ...]
//
// CALLS is what the tests recorded, one JSON object a line. implied.json adds the calls that nobody sees: those
// that AWS makes under our roles, and those of the console. SETTING names what the template was made with.
import { readFileSync } from "node:fs";
import { runSimulation } from "@cloud-copilot/iam-simulate";
import { Template, account, arn } from "./template.mjs";

const [callsFile, templateFile, ...settings] = process.argv.slice(2);
const json = (file) => JSON.parse(readFileSync(file, "utf8"));
const template = new Template(json(templateFile));
const here = (name) => new URL(name, import.meta.url);

// What a person needs for a command: the managed policies, of which each list is enough.
const commands = json(here("commands.json"));
// What is not as it should be on purpose, each with its reason.
const exceptions = json(here("exceptions.json"));

const service = (action) => action.split(":")[0];
const arnOf = (action, resource) => {
	if (resource === "*") return "*";
	if (resource === "KEY") return template.arnOf(template.of("AWS::KMS::Key")[0][0]);
	if (resource === "TOPIC") return template.arnOf(template.of("AWS::SNS::Topic")[0][0]);
	if (resource.startsWith("GLOBAL:")) return `arn:aws:${service(action)}::${account}:${resource.slice(7)}`;
	return arn(service(action), resource);
};

const recorded = readFileSync(callsFile, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const implied = json(here("implied.json"))
	.filter((entry) => !entry.settings || entry.settings.some((one) => settings.includes(one)))
	.flatMap((entry) => entry.calls.map((call) => {
		const [action, resource] = call.split(" ");
		return { principal: entry.principal, action, resource, context: entry.context };
	}));
const calls = [...new Map([...recorded, ...implied].map((call) => [JSON.stringify(call), call])).values()];

// grants are the statements that somebody has: a function's, or those of a command's policies.
const all = new Map(); // name → its statements
const sourcesOf = (principal) => {
	if (principal === "worker" || principal === "redrive") return [[principal]];
	if (principal.endsWith(".amazonaws.com")) return [[]];
	if (!(principal in commands)) throw new Error(`commands.json does not say which policies "${principal}" needs`);
	return commands[principal];
};
const statementsOf = (source) => {
	if (!all.has(source)) {
		const isFunction = source === "worker" || source === "redrive";
		const list = isFunction ? template.ofFunction(`acklast-${source}`) : template.ofPeople(source);
		all.set(source, list.map((statement) => ({ statement, used: new Set() })));
	}
	return all.get(source);
};
for (const name of ["worker", "redrive", ...template.people()]) statementsOf(name);

const allowed = async (principal, call, statements) => {
	const resource = arnOf(call.action, call.resource);
	const result = await runSimulation({
		request: {
			principal: principal.endsWith(".amazonaws.com") ? principal : `arn:aws:iam::${account}:role/${principal.replaceAll(" ", "-")}`,
			action: call.action,
			resource: { resource, accountId: account },
			contextVariables: { "aws:SecureTransport": "true", ...call.context },
		},
		identityPolicies: statements.length === 0 ? [] : [{ name: "identity", policy: { Version: "2012-10-17", Statement: statements } }],
		serviceControlPolicies: [],
		resourceControlPolicies: [],
		resourcePolicy: template.onResource(resource),
	}, {});
	if (result.resultType === "error") throw new Error(`${call.action} on ${resource}: ${JSON.stringify(result.errors)}`);
	return result.overallResult === "Allowed";
};

// What only reads is asked for through another alias if AWS denies it through the first.
const waysOf = (call) => {
	const { commands: names, resources } = exceptions.either;
	if (!names.includes(call.principal) || !resources.includes(call.resource)) return [call];
	return resources.map((resource) => ({ ...call, resource }));
};

// An action in a statement may end with an asterisk.
const matches = (pattern, action) => (pattern.endsWith("*") ? action.startsWith(pattern.slice(0, -1)) : action === pattern);

const findings = [];
const denied = new Set(); // the exceptions that were needed
for (const call of calls) {
	const what = `${call.principal}: ${call.action} on ${call.resource}`;
	if (exceptions.calls[call.action]) continue;
	if (call.action.startsWith("unknown:")) {
		findings.push(`not understood: ${what}`);
		continue;
	}
	for (const sources of sourcesOf(call.principal)) {
		const grants = sources.flatMap(statementsOf);
		let passed; // the call as it is allowed
		for (const way of waysOf(call)) {
			if (await allowed(call.principal, way, grants.map((g) => g.statement))) passed = way;
		}
		if (!passed) {
			const tolerated = `${sources.join(" and ")} ${call.principal} ${call.action}`;
			if (exceptions.denied[tolerated]) denied.add(tolerated);
			else findings.push(`denied with ${sources.join(" and ") || "the resource's policy"}: ${what}`);
			continue;
		}
		for (const grant of grants) {
			if (await allowed(call.principal, passed, [grant.statement])) grant.used.add(call.action);
		}
	}
}
// The documentation says the same of each policy and its commands.
const documentation = readFileSync(here("../../docs/deploy.md"), "utf8");
for (const policy of template.people()) {
	const own = Object.keys(commands).filter((name) => name !== "reading" && commands[name].some((list) => list.includes(policy)));
	const title = policy.replace(/(?<=[a-z])(?=[A-Z])/, "-").toLowerCase();
	const row = documentation.split("\n").find((line) => line.startsWith(`| *${title}* |`)) ?? "";
	const told = [...row.matchAll(/`([^`]+)`/g)].map(([, name]) => name).filter((name) => !name.startsWith("--")); // flags are no commands
	if (told.sort().join() !== own.sort().join()) {
		findings.push(`docs/deploy.md says of ${title}: ${told.join(", ") || "nothing"}; commands.json says ${own.join(", ")}`);
	}
}
for (const command of Object.keys(commands)) {
	if (!calls.some((call) => call.principal === command)) findings.push(`no call of "${command}" was recorded`);
}
for (const [source, grants] of all) {
	for (const { statement, used } of grants) {
		for (const action of [statement.Action].flat()) {
			if (![...used].some((one) => matches(action, one)) && !exceptions.unused[`${source} ${action}`]) {
				findings.push(`not used by any call: ${source} may ${action} on ${[statement.Resource].flat().join(", ")}`);
			}
		}
	}
}
for (const tolerated of Object.keys(exceptions.denied)) {
	if (!denied.has(tolerated)) findings.push(`exceptions.json allows for a denial that does not happen: ${tolerated}`);
}
const title = `${calls.length} calls, ${all.size} holders, settings: ${settings.join(", ") || "default"}`;
if (findings.length > 0) {
	console.error(`${title}\n${findings.join("\n")}`);
	process.exit(1);
}
console.log(`${title}: every call is allowed, but for ${denied.size} that may be denied, and every action is used`);

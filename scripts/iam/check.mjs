// Replays AWS calls against the policies of a synthesised template. Every call must be allowed, and every action
// of every statement must be used by some call. Statements on queues, topics, keys, functions and roles count too.
//
// usage: node check.mjs CALLS TEMPLATE [SETTING ...]
//
// CALLS is what the tests recorded, one JSON object a line. implied.json adds the calls that nobody sees: those
// that AWS makes under our roles or for itself, and those of the console. SETTING names what the template was made with.
// An entry of it with "denied" is a call that must not be allowed.
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

// What implied.json calls by the only resource of its type, since its name is CloudFormation's to choose.
const only = { KEY: "AWS::KMS::Key", TOPIC: "AWS::SNS::Topic", RULE: "AWS::Events::Rule" };
const service = (action) => action.split(":")[0];
const arnOf = (action, resource) => {
	if (resource === "*") return "*";
	if (resource in only) return template.arnOf(template.one(only[resource]));
	if (resource.startsWith("ROLE:")) return template.arnOf(template.roles().get(resource.slice(5)));
	if (resource.startsWith("GLOBAL:")) return `arn:aws:${service(action)}::${account}:${resource.slice(7)}`;
	return arn(service(action), resource);
};

const recorded = readFileSync(callsFile, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const implied = json(here("implied.json"))
	.filter((entry) => !entry.settings || entry.settings.every((one) => settings.includes(one)))
	.flatMap((entry) => entry.calls.map((call) => {
		const [action, resource] = call.split(" ");
		return { principal: entry.principal, action, resource, context: entry.context, denied: entry.denied };
	}));
const calls = [...new Map([...recorded, ...implied].map((call) => [JSON.stringify(call), call])).values()];

// grants are the statements that somebody has: a role's, those of a command's policies, or a resource's own.
const all = new Map(); // name → its statements
const roles = template.roles();
const isService = (principal) => principal.endsWith(".amazonaws.com");
const sourcesOf = (principal) => {
	if (roles.has(principal)) return [[principal]];
	if (isService(principal)) return [[]];
	if (!(principal in commands)) throw new Error(`commands.json does not say which policies "${principal}" needs`);
	return commands[principal];
};
const add = (name, statements) => all.set(name, statements.map((statement) => ({ statement, used: new Set() })));
for (const name of roles.keys()) {
	const { statements, managed } = template.ofRole(name);
	for (const policy of managed) {
		if (!exceptions.managed[`${name} ${policy}`]) throw new Error(`the role ${name} has the policy ${policy}, which is not read`);
	}
	add(name, statements);
}
for (const name of template.people()) add(name, template.ofPeople(name));
const ownOf = (resource) => all.get(`the policy on ${resource}`) ?? [];
for (const [resource, statements] of template.onResources()) add(`the policy on ${resource}`, statements);

const document = (statements) => ({ Version: "2012-10-17", Statement: statements });
const allowed = async (call, statements, own, secure = "true") => {
	const resource = arnOf(call.action, call.resource);
	const sourceArn = call.context?.["aws:SourceArn"];
	const result = await runSimulation({
		request: {
			principal: isService(call.principal) ? call.principal : `arn:aws:iam::${account}:role/${call.principal.replaceAll(" ", "-")}`,
			action: call.action,
			resource: { resource, accountId: account },
			contextVariables: {
				"aws:SecureTransport": secure, ...call.context, ...(sourceArn in only ? { "aws:SourceArn": arnOf("", sourceArn) } : {}),
			},
		},
		identityPolicies: statements.length === 0 ? [] : [{ name: "identity", policy: document(statements) }],
		serviceControlPolicies: [],
		resourceControlPolicies: [],
		resourcePolicy: own.length === 0 ? undefined : document(own),
	}, {});
	if (result.resultType === "error") throw new Error(`${call.action} on ${resource}: ${JSON.stringify(result.errors)}`);
	return result.overallResult === "Allowed";
};

// use marks the statements that an allowed call needs. One of the resource's own is needed if the call is denied without
// it. A denial is needed if it stops the call when that comes without TLS, which is what all of them are about.
const use = async (call, grants, own) => {
	const statements = grants.map((g) => g.statement);
	const policy = own.map((o) => o.statement);
	for (const grant of grants) {
		if (await allowed(call, [grant.statement], policy)) grant.used.add(call.action);
	}
	for (const one of own) {
		if (one.used.has(call.action)) continue;
		const others = policy.filter((statement) => statement !== one.statement);
		const needed = one.statement.Effect === "Deny"
			? (await allowed(call, statements, others, "false")) && !(await allowed(call, statements, policy, "false"))
			: !(await allowed(call, statements, others));
		if (needed) one.used.add(call.action);
	}
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
		const grants = sources.flatMap((source) => all.get(source));
		const who = sources.join(" and ") || "the resource's policy";
		let passed = false;
		for (const way of waysOf(call)) {
			const own = ownOf(arnOf(way.action, way.resource));
			if (!(await allowed(way, grants.map((g) => g.statement), own.map((o) => o.statement)))) continue;
			passed = true;
			if (!call.denied) await use(way, grants, own);
		}
		if (passed === !call.denied) continue;
		const tolerated = `${sources.join(" and ")} ${call.principal} ${call.action}`;
		if (call.denied) findings.push(`allowed with ${who}, and should not be: ${what} with ${JSON.stringify(call.context)}`);
		else if (exceptions.denied[tolerated]) denied.add(tolerated);
		else findings.push(`denied with ${who}: ${what}`);
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
				findings.push(`not used by any call: ${source}: ${statement.Effect} ${action} on ${[statement.Resource ?? "it"].flat().join(", ")}`);
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

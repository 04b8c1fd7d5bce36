// Reads the policies of a synthesised template, with every reference resolved.

export const account = "123456789012";
export const region = "eu-central-1";
const pseudo = { "AWS::AccountId": account, "AWS::Region": region, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com" };

export const arn = (service, resource) => `arn:aws:${service}:${region}:${account}:${resource}`;

export class Template {
	constructor(json) {
		this.resources = json.Resources;
	}

	of(type) {
		return Object.entries(this.resources).filter(([, r]) => r.Type === type);
	}

	// one is the id of the only resource of a type.
	one(type) {
		const ids = this.of(type).map(([id]) => id);
		if (ids.length !== 1) throw new Error(`${ids.length} resources are a ${type}`);
		return ids[0];
	}

	// arnOf is the ARN of a resource of a type that policies name.
	arnOf(id) {
		const { Type, Properties: p } = this.resources[id];
		switch (Type) {
			case "AWS::SQS::Queue":
				return arn("sqs", p.QueueName);
			case "AWS::DynamoDB::Table":
				return arn("dynamodb", `table/${p.TableName}`);
			case "AWS::Lambda::Function":
				return arn("lambda", `function:${p.FunctionName}`);
			case "AWS::Lambda::EventSourceMapping":
				return arn("lambda", `event-source-mapping:${this.lane(p)}`);
			case "AWS::Logs::LogGroup":
				return arn("logs", `log-group:${p.LogGroupName}:*`);
			case "AWS::KMS::Key":
				return arn("kms", `key/${id}`);
			case "AWS::SNS::Topic":
				return arn("sns", `topic-${id}`);
			case "AWS::Events::Rule":
				return arn("events", `rule/${id}`);
			case "AWS::IAM::Role":
				return `arn:aws:iam::${account}:role/${p.RoleName ? this.resolve(p.RoleName) : id}`;
		}
		throw new Error(`no ARN is known for ${id}, a ${Type}`);
	}

	// lane is the lane of a mapping, by which the recorded calls name it.
	lane(mapping) {
		return this.resolve(mapping.EventSourceArn).replace(/.*-/, "");
	}

	resolve(value) {
		if (Array.isArray(value)) return value.map((inner) => this.resolve(inner));
		if (value === null || typeof value !== "object") return value;
		if (value.Ref !== undefined) return this.ref(value.Ref);
		if (value["Fn::GetAtt"]) return this.attribute(...value["Fn::GetAtt"]);
		if (value["Fn::Join"]) {
			const [separator, parts] = value["Fn::Join"];
			return parts.map((part) => this.resolve(part)).join(separator);
		}
		if (value["Fn::Sub"]) return value["Fn::Sub"].replace(/\$\{([^}]+)\}/g, (_, name) => this.ref(name));
		return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, this.resolve(inner)]));
	}

	ref(name) {
		if (name in pseudo) return pseudo[name];
		const { Type, Properties: p } = this.resources[name] ?? {};
		switch (Type) {
			case "AWS::Lambda::Alias":
				return `${arn("lambda", `function:${this.resources[p.FunctionName.Ref].Properties.FunctionName}`)}:${p.Name}`;
			case "AWS::Lambda::EventSourceMapping":
				return this.lane(p);
			case "AWS::Lambda::Function":
				return p.FunctionName;
			case "AWS::SNS::Topic":
				return this.arnOf(name);
			case "AWS::CodeDeploy::Application":
			case "AWS::CodeDeploy::DeploymentGroup":
			case "AWS::IAM::Role":
			case "AWS::KMS::Key":
				return name;
		}
		throw new Error(`no Ref is known for ${name}, a ${Type}`);
	}

	attribute(name, attribute) {
		if (["Arn", "EventSourceMappingArn", "TopicArn"].includes(attribute)) return this.arnOf(name);
		throw new Error(`no attribute ${attribute} is known for ${name}`);
	}

	// statements lists a policy document's statements.
	statements(document) {
		return [document.Statement].flat().map((s) => this.resolve(s));
	}

	// roles are the ids of the roles by what they are for: WorkerRole0A1B2C3D is the worker's.
	roles() {
		return new Map(this.of("AWS::IAM::Role").map(([id]) => [id.slice(0, -8).replace(/(Service)?Role$/, "").toLowerCase(), id]));
	}

	// ofRole returns the statements of a role, and the managed policies that are not read.
	ofRole(name) {
		const id = this.roles().get(name);
		const { Policies = [], ManagedPolicyArns = [] } = this.resources[id].Properties;
		const attached = this.of("AWS::IAM::Policy").map(([, p]) => p.Properties).filter((p) => p.Roles.some((r) => r.Ref === id));
		return {
			statements: [...Policies, ...attached].flatMap((p) => this.statements(p.PolicyDocument)),
			managed: ManagedPolicyArns.map((one) => this.resolve(one)),
		};
	}

	// ofPeople returns the statements of the managed policy whose logical id is the name and a hash.
	ofPeople(name) {
		const found = this.of("AWS::IAM::ManagedPolicy").filter(([id]) => new RegExp(`^${name}[0-9A-F]{8}$`).test(id));
		if (found.length !== 1) throw new Error(`${found.length} policies are called ${name}`);
		return this.statements(found[0][1].Properties.PolicyDocument);
	}

	people() {
		return this.of("AWS::IAM::ManagedPolicy").map(([id]) => id.slice(0, -8));
	}

	// onResources returns the statements that resources have themselves, by the resource's ARN: those on queues, topics and
	// keys, of who may invoke a function, and of who may act under a role.
	onResources() {
		const all = new Map();
		const add = (target, statements) => all.set(target, [...(all.get(target) ?? []), ...statements]);
		for (const [, { Properties: p }] of this.of("AWS::SQS::QueuePolicy")) {
			for (const queue of p.Queues) add(this.arnOf(queue.Ref), this.statements(p.PolicyDocument)); // a queue's Ref is its URL
		}
		for (const [, { Properties: p }] of this.of("AWS::SNS::TopicPolicy")) {
			for (const topic of this.resolve(p.Topics)) add(topic, this.statements(p.PolicyDocument));
		}
		for (const [id, { Properties: p }] of this.of("AWS::KMS::Key")) add(this.arnOf(id), this.statements(p.KeyPolicy));
		for (const [id, { Properties: p }] of this.of("AWS::IAM::Role")) add(this.arnOf(id), this.statements(p.AssumeRolePolicyDocument));
		for (const [, { Properties }] of this.of("AWS::Lambda::Permission")) {
			const p = this.resolve(Properties);
			add(p.FunctionName, [{
				Effect: "Allow", Principal: { Service: p.Principal }, Action: p.Action, Resource: p.FunctionName,
				Condition: p.SourceArn ? { ArnLike: { "aws:SourceArn": p.SourceArn } } : {},
			}]);
		}
		return all;
	}
}

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

	// ofFunction returns the statements of a function's role.
	ofFunction(name) {
		const [, fn] = this.of("AWS::Lambda::Function").find(([, f]) => f.Properties.FunctionName === name);
		const role = fn.Properties.Role["Fn::GetAtt"][0];
		const managed = this.resources[role].Properties.ManagedPolicyArns ?? [];
		if (managed.length > 0 || this.resources[role].Properties.Policies) throw new Error(`${role} has policies of its own, which are not read`);
		return this.of("AWS::IAM::Policy")
			.filter(([, p]) => p.Properties.Roles.some((r) => r.Ref === role))
			.flatMap(([, p]) => this.statements(p.Properties.PolicyDocument));
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

	// onResource returns the policy on the queue, topic or key with the ARN, if it has one.
	onResource(target) {
		for (const [, p] of this.of("AWS::SQS::QueuePolicy")) {
			if (p.Properties.Queues.some((q) => this.queueURL(q) === target)) return this.resolve(p.Properties.PolicyDocument);
		}
		for (const [, p] of this.of("AWS::SNS::TopicPolicy")) {
			if (this.resolve(p.Properties.Topics).includes(target)) return this.resolve(p.Properties.PolicyDocument);
		}
		for (const [id, k] of this.of("AWS::KMS::Key")) {
			if (this.arnOf(id) === target) return this.resolve(k.Properties.KeyPolicy);
		}
		return undefined;
	}

	// queueURL: a queue policy names its queues by Ref, which is a URL.
	queueURL(q) {
		return this.arnOf(q.Ref);
	}
}

/**
 * The forms of a secret in texts and in objects of the kinds that a bundle contains. A test gives each form its own
 * secret.
 */
import { Buffer } from 'node:buffer'

export type TextForm = (secret: string) => string

export interface ObjectForm {
  readonly kind: string
  /** Returns the object without its name. */
  readonly of: (secret: string) => Readonly<Record<string, unknown>>
}

export const b64 = (text: string): string => Buffer.from(text).toString('base64')
const hex = (text: string): string => Buffer.from(text).toString('hex')

/** Returns base64 that is long enough to count as the secret itself, for forms that need a body of base64. */
const body = (secret: string): string => b64(`${secret}:${secret}:${secret}:${secret}`)
const pem = (what: string, line: string, secret: string): string =>
  `-----BEGIN ${what}-----${line}${body(secret)}${line}-----END ${what}-----`
const jwt = (secret: string): string => `eyJhbGciOiJSUzI1NiJ9.${b64(`{"sub":"${secret}"}`).replaceAll('=', '')}.c2ln`

/** Forms of texts that may occur anywhere: logs, plans, pages, and messages of conditions and events. */
export const TEXT_FORMS: Readonly<Record<string, TextForm>> = {
  'password=': (s) => `password=${s}`,
  'password:': (s) => `login failed, password: ${s}`,
  'password with spaces': (s) => `password="${s} ${s} staple"`,
  'password with spaces, bare': (s) => `password: correct ${s} staple`,
  'password with an escaped quote': (s) => `{"password":"a\\"${s}"}`,
  'password with a quote of the other kind': (s) => `password="it's ${s}"`,
  'passwd=': (s) => `passwd=${s}`,
  'pass=': (s) => `user=root pass=${s}`,
  'PASS:': (s) => `PASS: ${s}`,
  'pwd=': (s) => `Server=db;Uid=root;Pwd=${s};`,
  'db-pass quoted': (s) => `db-pass: '${s} ${s}'`,
  passphrase: (s) => `passphrase: ${s} ${s}`,
  'passcode and pin': (s) => `passcode=${s}`,
  client_secret: (s) => `client_secret=${s}&x=1`,
  access_token: (s) => `GET /x?access_token=${s}&x=1`,
  'token in a sentence': (s) => `the token ${s} was refused`,
  'api key': (s) => `X-Api-Key: ${s}`,
  'array under a secret key': (s) => `{"passwords":["a","${s}"]}`,
  'object under a secret key': (s) => `{"password":{"old":"x","new":"${s}"}}`,
  'array of YAML': (s) => `passwords:\n  - first\n  - ${s}\nother: x`,
  'object of YAML': (s) => `credentials:\n  user: root\n  value: ${s}\nother: x`,
  'block text of YAML': (s) => `password: |\n  ${s}\n  ${s}\nother: x`,
  'dockerconfig auth': (s) => `{"auths":{"r.example":{"auth":"${b64(`u:${s}`)}"}}}`,
  'dockerconfig in base64': (s) => `.dockerconfigjson: ${b64(`{"auths":{"r.example":{"auth":"${b64(`u:${s}`)}"}}}`)}`,
  'bearer login': (s) => `Authorization: Bearer ${s}`,
  'basic login': (s) => `curl -H "Authorization: Basic ${b64(`root:${s}`)}"`,
  'digest login': (s) => `Authorization: Digest username="u", response="${s}"`,
  'login of a scheme of its own': (s) => `Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=${s}`,
  cookies: (s) => `Cookie: theme=dark; session=${s}; sid=${s}`,
  'set-cookie': (s) => `Set-Cookie: sid=${s}; HttpOnly`,
  'curl -u': (s) => `curl -u root:${s} https://host/x`,
  'login in a URL': (s) => `https://root:${s}@host/x`,
  'token in a URL': (s) => `https://${s}@host/x`,
  'login of a database': (s) => `postgres://u:${s}@db:5432/x`,
  'webhook with a token': (s) => `https://hooks.slack.com/services/T000/B000/${s}`,
  'webhook of another kind': (s) => `https://discord.com/api/webhooks/1234/${s}`,
  'signed URL': (s) => `https://x.blob.core.windows.net/a?sv=2024&sig=${s}&se=1`,
  'key of Azure': (s) => `AccountName=x;AccountKey=${b64(s)};EndpointSuffix=core`,
  'secret key of AWS': (s) => `aws_secret_access_key = ${s}`,
  'key id of AWS': (s) => `signed by AKIA${hex(s).toUpperCase().slice(-16)}`,
  'key of GCP': (s) => `{"private_key_id":"${hex(s)}","private_key":${JSON.stringify(pem('PRIVATE KEY', '\n', s))}}`,
  'API key of Google': (s) => `using AIza${hex(s).padEnd(35, 'x').slice(0, 35)}`,
  'token of GitHub': (s) => `cloned with ghp_${hex(s).padEnd(36, 'x')}`,
  'fine token of GitHub': (s) => `cloned with github_pat_${hex(s)}_${hex(s)}`,
  'token of GitLab': (s) => `cloned with glpat-${s}`,
  'token of Slack': (s) => `posted with xoxb-1234-${s}`,
  'token of npm': (s) => `//npm.example/:_authToken=npm_${hex(s)}`,
  'token of Vault': (s) => `unsealed with hvs.${hex(s)}`,
  'token of Stripe': (s) => `paid with sk_live_${hex(s)}`,
  'JWT, bare': (s) => `sent ${jwt(s)} to it`,
  'PEM in lines': (s) => pem('EC PRIVATE KEY', '\n', s),
  'PEM in one line': (s) => pem('RSA PRIVATE KEY', ' ', s),
  'PEM with \\n': (s) => pem('PRIVATE KEY', '\\n', s),
  'PEM with \\r\\n': (s) => pem('PRIVATE KEY', '\\r\\n', s),
  'PEM without an end': (s) => `-----BEGIN OPENSSH PRIVATE KEY-----\n${body(s)}`,
  'certificate in one line': (s) => pem('CERTIFICATE', '', s),
  'certificate in base64': (s) => `certificate-authority-data: ${b64(pem('CERTIFICATE', '\n', s))}`,
  'base64 twice': (s) => b64(b64(`password=${s}`)),
  'hex key': (s) => `psk 0x${hex(s.padEnd(32, s))}`,
  'hex key, bare': (s) => `installed ${hex(s.padEnd(32, s))} in the kernel`,
  'key of WireGuard': (s) => `PrivateKey = ${Buffer.alloc(32, s).toString('base64')}`,
  'key of WireGuard, bare': (s) => `peer x uses ${Buffer.alloc(32, s).toString('base64')}`,
  kubeconfig: (s) => `users: [{ name: a, user: { password: ${s}, client-key-data: ${b64(pem('KEY', '\n', s))} } }]`,
  'flag and word': (s) => `sealane x --db-pass ${s}`,
  'flag and quoted words': (s) => `sealane x --password "${s} ${s}"`,
  'flag=': (s) => `sealane x --etcd-password=${s}`,
  'environment of a process': (s) => `ETCD_PASSWORD=${s} PATH=/bin`,
  'export of a shell': (s) => `export DB_PASS='${s} ${s}'`,
  'SQL statement': (s) => `CREATE USER x IDENTIFIED BY '${s}'`,
  netrc: (s) => `machine host login root password ${s}`,
  'htpasswd entry': (s) => `root:$apr1$${s}$${hex(s)}`,
  'line of shadow': (s) => `root:$6$${s}$${hex(s)}:19000:0:99999:7:::`,
}

const container = (more: object): Readonly<Record<string, unknown>> => ({
  metadata: { labels: { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'agent' } },
  spec: { containers: [{ name: 'agent', image: 'sealane:0.1.0', ...more }] },
})
const pod = (more: (s: string) => object): ObjectForm => ({ kind: 'Pod', of: (s) => container(more(s)) })
const volume = (more: (s: string) => object): ObjectForm => ({
  kind: 'Pod',
  of: (s) => ({ spec: { containers: [], volumes: [{ name: 'v', ...more(s) }] } }),
})
const annotated = (kind: string, key: string, text: (s: string) => string): ObjectForm => ({
  kind,
  of: (s) => ({ metadata: { annotations: { [key]: text(s) } } }),
})
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

/**
 * Forms of objects: an unmarked secret in a field that bundles leave out, and marked secrets in fields that bundles
 * contain.
 */
export const OBJECT_FORMS: Readonly<Record<string, ObjectForm>> = {
  'env value': pod((s) => ({ env: [{ name: 'PLAIN', value: s }] })),
  'env value of a secret name': pod((s) => ({ env: [{ name: 'DB_PASS', value: s }] })),
  'env of an init container': {
    kind: 'Pod',
    of: (s) => ({ spec: { initContainers: [{ env: [{ name: 'A', value: s }] }] } }),
  },
  'env of an ephemeral container': {
    kind: 'Pod',
    of: (s) => ({
      spec: { ephemeralContainers: [{ name: 'debug', command: ['x', s], env: [{ name: 'A', value: s }] }] },
    }),
  },
  'argument after a flag': pod((s) => ({ args: ['--token', s] })),
  'argument with =': pod((s) => ({ args: [`--etcd-pass=${s}`] })),
  'arguments of a sidecar': {
    kind: 'Pod',
    of: (s) => ({ spec: { containers: [{ name: 'proxy', args: ['serve', s], command: [s] }] } }),
  },
  'command of a shell': pod((s) => ({ command: ['sh', '-c', `login ${s}`] })),
  'exec probe': pod((s) => ({ livenessProbe: { exec: { command: ['check', s] } } })),
  'headers of a probe': pod((s) => ({
    readinessProbe: { httpGet: { path: `/x?${s}`, httpHeaders: [{ name: 'X', value: s }] } },
  })),
  'lifecycle hook': pod((s) => ({ lifecycle: { preStop: { exec: { command: ['sh', '-c', `bye ${s}`] } } } })),
  'annotation of a pod': annotated('Pod', 'vault.example/agent-inject', (s) => s),
  'last applied': annotated('Pod', LAST_APPLIED, (s) => JSON.stringify({ data: { x: s } })),
  'last applied of a Deployment': annotated('Deployment', LAST_APPLIED, (s) => JSON.stringify({ spec: { env: [s] } })),
  'values of Helm': annotated('DaemonSet', 'helm.example/values', (s) => `global:\n  db: ${s}`),
  'annotation of a CNI': annotated('Node', 'projectcalico.org/WireguardPublicKey', (s) => s),
  'annotation of a CNI, JSON': annotated('Node', 'k8s.ovn.org/node-config', (s) => JSON.stringify({ psk: s })),
  'annotation of a Service': annotated('Service', 'external-dns.example/key', (s) => s),
  'annotation of a ServiceExport': annotated('ServiceExport', 'example.org/note', (s) => s),
  'annotation of a Lease': annotated('Lease', 'example.org/note', (s) => s),
  'exported annotation': {
    kind: 'ServiceExport',
    of: (s) => ({ spec: { exportedAnnotations: { 'example.org/a': s } } }),
  },
  'password in our annotation': annotated('Node', 'sealane.io/public-address', (s) => `password=${s}`),
  'label of a secret name': { kind: 'Node', of: (s) => ({ metadata: { labels: { 'example.org/password': s } } }) },
  'label with a token of GitHub': {
    kind: 'Pod',
    of: (s) => ({ metadata: { labels: { a: `ghp_${hex(s).padEnd(36, 'x')}` } } }),
  },
  'ConfigMap data': { kind: 'ConfigMap', of: (s) => ({ data: { 'app.conf': `user u\n${s}` } }) },
  'ConfigMap of binary data': { kind: 'ConfigMap', of: (s) => ({ binaryData: { x: b64(s) } }) },
  'kubeconfig in a ConfigMap': {
    kind: 'ConfigMap',
    of: (s) => ({ data: { kubeconfig: `users:\n- user: {token: ${s}}` } }),
  },
  'comment in our settings': { kind: 'ConfigMap', of: (s) => ({ data: { 'site.yaml': `# ${s}\nkind: Site\n` } }) },
  'unknown field in our settings': {
    kind: 'ConfigMap',
    of: (s) => ({ data: { 'site.yaml': `kind: Site\nspec:\n  upstreamLogin: ${s}\n  description: ${s}\n` } }),
  },
  'Secret that was listed': { kind: 'Secret', of: (s) => ({ data: { x: b64(s) }, stringData: { y: s } }) },
  'kind that nobody knows': { kind: 'Widget', of: (s) => ({ spec: { a: s }, metadata: { labels: { a: s } } }) },
  'managed fields': { kind: 'Pod', of: (s) => ({ metadata: { managedFields: [{ manager: s }] } }) },
  'projected volume': volume((s) => ({ projected: { sources: [{ serviceAccountToken: { audience: s, path: s } }] } })),
  'volume of CSI': volume((s) => ({
    csi: { driver: 'x', volumeAttributes: { share: s }, nodePublishSecretRef: { name: s } },
  })),
  'volume of flex': volume((s) => ({ flexVolume: { driver: 'x', options: { user: s } } })),
  'volume of iSCSI': volume((s) => ({ iscsi: { chapAuthSession: true, initiatorName: s } })),
  'volume of Azure': volume((s) => ({ azureDisk: { diskURI: `https://x/a?sig=${s}` } })),
  'image with a login': pod((s) => ({ image: `https://root:${s}@registry.example/sealane` })),
  imagePullSecrets: { kind: 'Pod', of: (s) => ({ spec: { imagePullSecrets: [{ name: 'pull', auth: s }] } }) },
  'host aliases': { kind: 'Pod', of: (s) => ({ spec: { hostAliases: [{ ip: '1.1.1.1', hostnames: [s] }] } }) },
  'message of a container': {
    kind: 'Pod',
    of: (s) => ({ status: { containerStatuses: [{ state: { terminated: { message: `pass=${s}`, exitCode: 1 } } }] } }),
  },
  'password as an object': { kind: 'Pod', of: (s) => ({ spec: { password: { current: s, old: [s] } } }) },
  'array in place of a text': { kind: 'Pod', of: (s) => ({ spec: { nodeName: [{ x: s }] } }) },
  'env of a template': {
    kind: 'Deployment',
    of: (s) => ({ spec: { template: { spec: { containers: [{ name: 'agent', env: [{ name: 'A', value: s }] }] } } } }),
  },
  'annotation of a template': {
    kind: 'DaemonSet',
    of: (s) => ({ spec: { template: { metadata: { annotations: { a: s } }, spec: { containers: [] } } } }),
  },
  'condition message': {
    kind: 'Node',
    of: (s) => ({ status: { conditions: [{ type: 'Ready', message: `password: ${s}` }] } }),
  },
  'condition of another field': {
    kind: 'Node',
    of: (s) => ({ status: { conditions: [{ type: 'Ready', detail: s }] } }),
  },
  'provider of a Node': { kind: 'Node', of: (s) => ({ spec: { configSource: { x: s } } }) },
  'message of an Event': { kind: 'Event', of: (s) => ({ message: `pull failed: https://u:${s}@r.example/x` }) },
  'action of an Event': { kind: 'Event', of: (s) => ({ action: s, related: { name: s } }) },
  'external name': { kind: 'Service', of: (s) => ({ spec: { externalName: s, loadBalancerSourceRanges: [s] } }) },
  'field of NetworkPolicy': { kind: 'NetworkPolicy', of: (s) => ({ spec: { podSelector: {}, note: s } }) },
  'unknown field of our own kind': { kind: 'Gateway', of: (s) => ({ status: { adminPassword: s, other: s } }) },
  'unknown field in a list of ours': {
    kind: 'Gateway',
    of: (s) => ({ status: { connections: [{ cluster: 'a', debug: s }] } }),
  },
  'message of ours': { kind: 'Gateway', of: (s) => ({ status: { failure: `Authorization: Bearer ${s}` } }) },
  'capability of ours': {
    kind: 'Endpoint',
    of: (s) => ({ spec: { node: 'n', capabilities: [`token=${s}`], extra: [s] } }),
  },
  'field beside spec': { kind: 'Endpoint', of: (s) => ({ secrets: [s], anything: { a: [s] } }) },
  'slice endpoint': {
    kind: 'EndpointSlice',
    of: (s) => ({ endpoints: [{ addresses: ['10.0.0.1'], deprecatedTopology: { a: s } }] }),
  },
}

/** The forms of a secret in texts and objects: the redactor removes each of them, and keeps the useful parts. */
import t from 'tap'
import { objectLetOut } from '../../../cli/bundle/kind-fields.ts'
import { Redactor } from '../../../cli/bundle/redactor.ts'

const S = 'hunter2Zq'
const TWO = `${S} Battery staple`
const b64 = (text: string): string => Buffer.from(text).toString('base64')
const BODY = 'MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6'
const pem = (what: string, line: string): string => `-----BEGIN ${what}-----${line}${BODY}${line}-----END ${what}-----`
const KEY = pem('PRIVATE KEY', '\n')
const pod = (container: object): object => ({ kind: 'Pod', metadata: { name: 'p' }, spec: { containers: [container] } })
const annotated = (annotations: object): object => ({ kind: 'Node', metadata: { name: 'n', annotations } })

const SITE = 'kind: Site\nmetadata:\n  name: milano\nspec:\n  podCIDRs:\n    - 10.42.0.0/16\n'

const TEXTS: readonly string[] = [
  `password=${S}`,
  `password: ${S}`,
  `password="${TWO}"`,
  `password: ${TWO}`,
  `passwd=${S}`,
  `pass=${S}`,
  `pwd=${S}`,
  `PASS: ${S}`,
  `DB_PASS=${S}`,
  `db-pass: '${TWO}'`,
  `passphrase: ${TWO}`,
  `secret=${S}`,
  `client_secret=${S}&x=1`,
  `token: ${S}`,
  `access_token=${S}`,
  `api-key: ${S}`,
  `apikey=${S}`,
  `psk=${S}`,
  `"auth": "${b64(`u:${S}`)}"`,
  `{"auths":{"r.example":{"auth":"${b64(`u:${S}`)}"}}}`,
  `auth=${S}`,
  `Authorization: Bearer ${S}`,
  `authorization: Basic ${b64(`u:${S}`)}`,
  `Authorization: Digest ${S}`,
  `Cookie: session=${S}`,
  `set-cookie: ${S}`,
  `https://user:${S}@host/x`,
  `https://${S}@host/x`,
  `postgres://u:${S}@db:5432/x`,
  `curl -H 'X-Auth-Token: ${S}'`,
  `--password ${S}`,
  `--password=${S}`,
  `--db-pass ${S}`,
  `{\"password\":\"a\\"${S}\"}`,
  KEY,
  pem('RSA PRIVATE KEY', '\\n'),
  JSON.stringify(pem('CERTIFICATE', '\n')),
  b64(KEY),
  `signing-key: ${S}`,
  `tls.key: ${S}`,
  `ssh_key=${S}`,
]

const VALUES: readonly unknown[] = [
  { password: [S] },
  { password: { current: S, old: [S] } },
  { credentials: { user: 'u', value: S } },
  { tokens: [{ value: S }, S] },
  { secrets: { a: { b: { c: S } } } },
  { auth: S },
  { auths: { 'r.example': { auth: b64(`u:${S}`), password: S } } },
  { config: JSON.stringify({ auths: { r: { auth: b64(`u:${S}`) } } }) },
  { pass: S },
  { password: 12345678 },
  pod({ name: 'c', env: [{ name: 'PLAIN', value: S }] }),
  pod({ name: 'c', args: ['--token', S] }),
  pod({ name: 'c', args: [`--etcd-pass=${S}`] }),
  annotated({ 'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify({ data: { x: S } }) }),
  annotated({ 'example.org/anything': S }),
  annotated({ 'example.org/object': JSON.stringify({ a: [S] }) }),
  { kind: 'Secret', metadata: { name: 's' }, data: { x: b64(S) } },
  { kind: 'Secret', metadata: { name: 's' }, stringData: { x: [S] } },
  { kind: 'ConfigMap', metadata: { name: 'm' }, data: { 'app.conf': `user u\n${S}` } },
  { kind: 'ConfigMap', metadata: { name: 'm' }, binaryData: { x: b64(S) } },
  { metadata: { managedFields: [{ x: S }] } },
]

/** Redacts a value as a bundle does, which also limits an object of a known kind to its listed fields. */
function outOf(redactor: Redactor, value: unknown): unknown {
  const { kind } = value as { readonly kind?: string }
  return kind === undefined ? redactor.value(value) : objectLetOut(kind, redactor.value(value))
}

t.test('no form of a secret gets out', (t) => {
  t.ok(TEXTS.length + VALUES.length >= 52, `${TEXTS.length + VALUES.length} forms`)
  const passes = (text: string): boolean => [S, 'Battery', BODY, b64(S), '12345678'].some((one) => text.includes(one))
  const inside = (text: string): boolean =>
    (text.match(/[\w+/]{12,}={0,2}/g) ?? []).some((run) => passes(Buffer.from(run, 'base64').toString('latin1')))
  for (const form of [...TEXTS, ...VALUES]) {
    // Each form has its own redactor, so that a secret found in one form does not help to remove the next.
    const redactor = new Redactor()
    const out = typeof form === 'string' ? redactor.text(form) : JSON.stringify(outOf(redactor, form))
    const text = redactor.finish(out)
    t.notOk(passes(text) || inside(text), `${JSON.stringify(form)} → ${JSON.stringify(text)}`)
  }
  t.end()
})

t.test('the value of a selector stays where another field has it', (t) => {
  for (const selector of [
    { matchLabels: { 'auth-zone': 'prod-eu-1' } },
    { matchProperties: { 'auth-zone.example.org': 'prod-eu-1' } },
    { matchExpressions: [{ key: 'auth-zone', operator: 'In', values: ['prod-eu-1'] }] },
  ]) {
    const redactor = new Redactor()
    const found = { spec: redactor.value(selector), cluster: 'prod-eu-1' }
    t.match(redactor.finishValue(found), { cluster: 'prod-eu-1' }, JSON.stringify(selector))
    t.match(JSON.stringify(found.spec), /<redacted-key-1>/, 'a number in its place')
  }
  t.end()
})

t.test('what is needed to help gets out', (t) => {
  const kept: readonly unknown[] = [
    { kind: 'Node', metadata: { name: 'n', annotations: { 'sealane.io/public-address': '192.0.2.1' } } },
    { kind: 'ConfigMap', metadata: { name: 'sealane-site' }, data: { 'site.yaml': SITE } },
    { spec: { volumes: [{ name: 'id', secret: { secretName: 'sealane-identity' } }] } },
    { spec: { imagePullSecrets: [{ name: 'pull' }] } },
    { reason: 'TokenUsed', message: 'the link to paris is down: compass passes' },
    { msg: 'cannot remove a join token that is no longer needed', why: 'Error: EACCES: permission denied' },
    { msg: 'certificate renewed', until: '2026-11-27T00:00:00Z' },
    { message: 'secret "sealane-identity" not found, token of agent-0 is kept' },
    { image: `sealane@sha256:${'0a'.repeat(32)}`, revision: '1f'.repeat(20) },
    { kind: 'Lease', metadata: { name: 'sealane-agent' }, spec: { holderIdentity: 'sealane-agent-7d9f8-x2x1k' } },
  ]
  for (const object of kept) t.same(outOf(new Redactor(), object), object)
  const url = new Redactor().text(`https://root:${S}@10.0.0.1:2379 refused`)
  t.equal(url, 'https://root:<redacted>@10.0.0.1:2379 refused')
  t.end()
})

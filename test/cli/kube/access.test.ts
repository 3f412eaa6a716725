/** The messages for a cluster that denies access or cannot run Sealane, and the next attempt. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { memberRights } from '../../../cli/installation/check-rights.ts'
import { createJoinToken } from '../../../protocol/identity/token.ts'
import { identityParts } from '../../support/identity-parts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type FakeAccess, type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { runCli } from '../run-cli.ts'

interface Powers {
  /** Resources that the user may not write; none by default. */
  readonly denied?: readonly string[]
  readonly version?: string
}

/** Lets the fake server answer the first questions of a join: the user's rights and the server's version. */
function empower(server: FakeApiServer, { denied = [], version = 'v1.36.0' }: Powers): void {
  server.allows = ({ resource }) => !denied.includes(resource)
  server.fault = ({ path }) => (path === '/version' ? { status: 200, body: { gitVersion: version } } : undefined)
}

const WRITTEN = memberRights('sealane-system').map(({ resource }) => resource)

async function setUp(t: Test, powers: Powers = {}) {
  const server = await fakeApiServer(t)
  empower(server, powers)
  const folder = temporaryFolder(t)
  const token = join(folder, 'token')
  const text = createJoinToken({
    addresses: ['192.0.2.1:7443'],
    caPin: 'a'.repeat(64),
    clusterset: 'demo',
    expiresAtMs: Date.now() + 60_000,
  }).text()
  writeFileSync(token, text)
  const said = async (kubeconfig: string, ...more: string[]): Promise<string> => {
    const { code, stderr } = await runCli(['join', '--kubeconfig', kubeconfig, '--token-file', token, '--yes', ...more])
    t.equal(code, 1)
    const found = stderr.slice(stderr.lastIndexOf('sealane: ') + 'sealane: '.length).trimEnd()
    return found.replaceAll(kubeconfig, 'FILE').replaceAll(server.url, 'SERVER').replaceAll('\n', '; ')
  }
  const saidWithoutToken = async (kubeconfig: string, ...more: string[]): Promise<string> => {
    const { code, stderr } = await runCli(['join', '--kubeconfig', kubeconfig, '--yes', ...more])
    t.not(code, 0)
    const found = stderr.slice(stderr.lastIndexOf('sealane: ') + 'sealane: '.length).trimEnd()
    return `${code}: ${found.replaceAll(kubeconfig, 'FILE').replaceAll('\n', '; ')}`
  }
  return { server, folder, said, saidWithoutToken }
}

/** Returns the requests that would change an object. */
function writes({ requests }: FakeApiServer): readonly string[] {
  return requests.filter((line) => !/^GET |^POST .*(selfsubject|dryRun)/.test(line))
}

const HINT = 'log in again, or use another kubeconfig or --context; this request changed nothing'

t.test('credentials that are not accepted', async (t) => {
  const { server, said } = await setUp(t)
  server.fault = undefined
  server.tokens.add('another')
  t.equal(
    await said(server.kubeconfig),
    `context "fake" of FILE: the API server rejected these credentials (401 Unauthorized): they are wrong or have expired; ${HINT}`,
  )
  t.strictSame(writes(server), [], 'nothing was written')
})

t.test('a client certificate that has expired', async (t) => {
  const { server, said } = await setUp(t)
  const expired = await server.kubeconfigFor({ name: 'ana', groups: ['system:masters'], validMs: -3_600_000 })
  t.match(await said(expired), /^context "fake" of FILE: its client certificate expired at \d{4}-[^;]+Z; log in again/)
  t.strictSame(writes(server), [], 'nothing was written')
})

t.test('kubeconfigs that lead nowhere', async (t) => {
  const { server, folder, said } = await setUp(t)
  t.equal(await said(join(folder, 'none')), 'kubeconfig FILE does not exist')
  t.equal(await said(server.kubeconfig, '--context', 'moon'), 'kubeconfig FILE has no context "moon"; it has: fake')
  const away = server.kubeconfigAt('https://127.0.0.1:1')
  t.equal(
    await said(away),
    'context "fake" of FILE: discover security.openshift.io/v1: the API server at https://127.0.0.1:1 is unreachable: ' +
      'connect ECONNREFUSED 127.0.0.1:1; check that the address in the kubeconfig is correct and can be reached from here',
  )
})

t.test('a user who may only read', async (t) => {
  const { server, said } = await setUp(t, { denied: WRITTEN })
  t.equal(
    await said(server.kubeconfig),
    'context "fake" of FILE: this user may not get, create and patch customresourcedefinitions.apiextensions.k8s.io, ' +
      'get, create and patch namespaces, patch nodes, patch memberships.sealane.io, get, create and patch clusterroles.rbac.authorization.k8s.io, ' +
      'get, create and patch clusterrolebindings.rbac.authorization.k8s.io, ' +
      'get, create and patch validatingadmissionpolicies.admissionregistration.k8s.io, ' +
      'get, create and patch validatingadmissionpolicybindings.admissionregistration.k8s.io; ' +
      'get, create and patch roles.rbac.authorization.k8s.io, get, create and patch rolebindings.rbac.authorization.k8s.io, ' +
      'get, create and patch configmaps, get, create and patch secrets, get, create and patch serviceaccounts, ' +
      'get, create and patch services, get, create and patch resourcequotas, get, create and patch daemonsets.apps, ' +
      'get, create and patch deployments.apps, get, create and patch poddisruptionbudgets.policy, ' +
      'get, create and patch networkpolicies.networking.k8s.io in namespace sealane-system; ' +
      'use a kubeconfig of a cluster administrator; nothing was changed',
  )
  t.strictSame(writes(server), [], 'nothing was written')
})

t.test('what counts is who asks, and the verb: who may look may not install', async (t) => {
  const { server, said, saidWithoutToken } = await setUp(t)
  const asked: FakeAccess[] = []
  const mayLook = new Set<string>()
  server.allows = (access) => {
    asked.push(access)
    return access.user !== 'reader' || (mayLook.has('reader') && ['get', 'list', 'watch'].includes(access.verb))
  }
  const reader = await server.kubeconfigFor({ name: 'reader' })
  const refused =
    /^context "fake" of FILE: this user may not (get, )?create and patch customresourcedefinitions\..*, (get, )?create and patch networkpolicies\.networking\.k8s\.io in namespace sealane-system; use a/
  t.match(await said(reader), refused)
  mayLook.add('reader')
  t.match(await said(reader), refused, 'also when it may read')
  t.ok(asked.length > 0 && asked.every(({ user }) => user === 'reader'), 'reviews are of who has the certificate')
  const ana = await server.kubeconfigFor({ name: 'ana' })
  t.match(
    await saidWithoutToken(ana),
    /^2: /,
    'and somebody else comes further, to what is missing on the command line',
  )
  t.strictSame(writes(server), [], 'nothing was written')
})

t.test('a cluster that is too old', async (t) => {
  const { server, said } = await setUp(t, { version: 'v1.28.15' })
  t.equal(
    await said(server.kubeconfig),
    'Kubernetes v1.28.15 is too old: expected 1.31 or newer (CRDs can check addresses and networks since 1.31)',
  )
  t.strictSame(
    server.requests.filter((line) => line.startsWith('PATCH ')),
    [],
    'nothing was written',
  )
})

t.test('a token that cannot be one is told before the cluster is looked at', async (t) => {
  const { server, folder } = await setUp(t)
  const file = join(folder, 'torn')
  writeFileSync(file, 'sealane1.abc')
  const { code, stderr } = await runCli(['join', '--kubeconfig', server.kubeconfig, '--token-file', file, '--yes'])
  t.equal(code, 1)
  t.equal(
    stderr,
    'sealane: join token: its checksum is wrong: the token was truncated or changed when copied\nreason: TokenDamaged\n',
  )
})

t.test('where Sealane is not installed', async (t) => {
  const { server } = await setUp(t)
  const at = ['--kubeconfig', server.kubeconfig]
  for (const words of [
    ['show', 'clusters'],
    ['export', 'web'],
  ]) {
    const { code, stderr } = await runCli([...words, ...at])
    t.equal(code, 1)
    t.equal(
      stderr.replaceAll(server.kubeconfig, 'FILE'),
      'sealane: context "fake" of FILE: Sealane is not installed: there is no ConfigMap sealane-system/sealane-site\n' +
        'join this cluster first: sealane join --kubeconfig FILE --token-file FILE\n',
      words.join(' '),
    )
  }
  const token = await runCli(['token', 'create', ...at])
  t.match(token.stderr, /no broker is installed\ninstall or repair it: sealane broker deploy --kubeconfig /)
})

/** Flags for everything that discovery cannot find out. */
const ALL = ['--pod-cidr', '10.42.0.0/16', '--service-cidr', '10.43.0.0/16', '--gateway', 'n1', '--cluster-id', 'paris']
const SYSTEM = 'sealane-system'

/** Puts the Secret of an earlier join, with these annotations. */
async function member(server: FakeApiServer, clusterset: string, annotations: Readonly<Record<string, string>> = {}) {
  const parts = Object.entries(await identityParts(clusterset))
  const data = Object.fromEntries(parts.map(([name, text]) => [name, Buffer.from(text).toString('base64')]))
  const at = { apiVersion: 'v1', kind: 'Secret', name: 'sealane-identity', namespace: SYSTEM }
  const metadata = { name: at.name, namespace: at.namespace, annotations }
  server.objects.put({ resource: 'v1/secrets', ...at }, { apiVersion: 'v1', kind: 'Secret', metadata, data })
}

t.test(
  'without a token: who is no member, whose identity is gone, and whom the broker refuses, hears it at once',
  async (t) => {
    const { server, saidWithoutToken } = await setUp(t)
    const join = (): Promise<string> => saidWithoutToken(server.kubeconfig, ...ALL)
    t.equal(
      await join(),
      '2: no join token: expected --token, --token-file or SEALANE_TOKEN; create a token on the broker: sealane token create',
    )
    server.objects.put(server.place('Membership', 'self'), {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Membership',
      metadata: { name: 'self' },
      spec: { clusterId: 'paris', phase: 'joined', clusterset: 'demo' },
    })
    const NEW =
      'a new token for this id is needed; on the broker: sealane token create --cluster-id paris; ' +
      'then: sealane join --kubeconfig FILE --token-file FILE'
    const OR = "; or, with the rights of the broker's operator: sealane join --kubeconfig FILE --broker-context CONTEXT"
    t.equal(
      await join(),
      '1: context "fake" of FILE joined earlier as paris, but Secret sealane-system/sealane-identity has no identity: ' +
        NEW +
        OR,
    )
    await member(server, 'demo', { 'sealane.io/join-problem': 'cluster "paris" was evicted at noon' })
    t.equal(
      await join(),
      '1: context "fake" of FILE has joined as paris, and the broker refuses its identity: cluster "paris" was evicted at noon: ' +
        NEW,
    )
    t.strictSame(writes(server), [], 'nothing was changed')
  },
)

t.test('an earlier membership stands in the way: told before anything is changed', async (t) => {
  const { server, said } = await setUp(t)
  const join = (): Promise<string> => said(server.kubeconfig, ...ALL)
  const LEAVE = 'leave first: sealane leave --kubeconfig FILE'
  await member(server, 'other')
  t.equal(await join(), `context "fake" of FILE is already joined as paris in clusterset other; ${LEAVE}`)
  await member(server, 'demo')
  t.equal(
    await said(server.kubeconfig, ...ALL.slice(0, -1), 'tokyo'),
    `context "fake" of FILE is already a member, as paris, not as tokyo; ${LEAVE}`,
  )
  t.strictSame(writes(server), [], 'nothing was changed')
})

/**
 * The queries that diagnose makes from the pod network of a cluster: their targets, the pod that makes them, and the
 * findings.
 */
import fc from 'fast-check'
import t from 'tap'
import { networkProbes } from '../../../cli/status/probes/network-probes.ts'
import { SILENT_PROGRESS } from '../../../cli/status/probes/progress.ts'
import type { ClusterAdmin, ListScope } from '../../../cli/context/cluster-admin.ts'
import type { Area } from '../../../explain/facts/finding.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import type { CommandResult, PodCommand } from '../../../kubeapi/kube/http/pod-exec.ts'

type Exec = (command: PodCommand) => Promise<CommandResult>
type Objects = Readonly<Record<string, readonly ManifestObject[]>>

const done = (stdout: string, status = 0, stderr = ''): Promise<CommandResult> =>
  Promise.resolve({ status, stdout, stderr })

const object = (kind: string, name: string, rest: object = {}): ManifestObject => ({
  apiVersion: 'v1',
  kind,
  metadata: { name },
  ...rest,
})

function agent(name: string, { ready = true, phase = 'Running', going = false } = {}): ManifestObject {
  const conditions = [{ type: 'Ready', status: ready ? 'True' : 'False' }]
  const metadata = { name, ...(going ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}) }
  return object('Pod', name, { metadata, status: { phase, conditions } })
}

const TCP = { name: 'dns-tcp', port: 53, protocol: 'TCP' }
const UDP = { name: 'dns', port: 53, protocol: 'UDP' }

/** Objects by namespace and kind. */
const OBJECTS: Objects = {
  'sealane-system/Pod': [agent('sealane-agent-a'), agent('sealane-agent-b')],
  'kube-system/Service': [object('Service', 'kube-dns', { spec: { clusterIP: '10.43.0.10', ports: [TCP, UDP] } })],
  'kube-system/EndpointSlice': [
    object('EndpointSlice', 'kube-dns-x', {
      endpoints: [
        { addresses: ['10.42.0.8'], conditions: { ready: true } },
        { addresses: ['10.42.0.7', '10.42.0.77'], conditions: {} },
        { addresses: ['10.42.0.9'], conditions: { ready: false } },
      ],
      ports: [TCP, UDP],
    }),
    object('EndpointSlice', 'metrics', { endpoints: [{ addresses: ['10.42.0.7'] }], ports: [TCP] }),
  ],
  'sealane-system/Service': [
    object('Service', 'sealane-dns', { spec: { clusterIPs: ['10.43.0.99', 'fd00::99'], ports: [UDP, TCP] } }),
  ],
  'sealane-system/EndpointSlice': [
    object('EndpointSlice', 'sealane-dns-x', {
      endpoints: [{ addresses: ['10.42.0.11'] }],
      ports: [{ ...UDP, port: 5353 }],
    }),
  ],
}

const DNS_WORDS = [
  'cluster=10.43.0.10:53',
  'cluster=10.42.0.7:53',
  'cluster=10.42.0.8:53',
  'ours=10.43.0.99:53',
  'ours=[fd00::99]:53',
  'ours=10.42.0.11:5353',
].flatMap((word) => ['--dns', word])

function admin(exec: Exec, objects: Objects = OBJECTS, holder = 'sealane-agent-b-0a1b2c3d'): ClusterAdmin {
  return {
    title: 'context "c1"',
    list: (_: string, kind: string, { namespace = '' }: ListScope) => {
      const found = objects[`${namespace}/${kind}`]
      return found === undefined
        ? Promise.reject(new ClusterApiError('Forbidden', `${kind} is forbidden`))
        : Promise.resolve(found)
    },
    get: () => Promise.resolve(object('Lease', 'sealane-agent', { spec: { holderIdentity: holder } })),
    exec,
  } as unknown as ClusterAdmin
}

function probe(of: ClusterAdmin, area?: Area) {
  return networkProbes(of, { area, progress: SILENT_PROGRESS, signal: new AbortController().signal })
}

const said = (...facts: readonly unknown[]): string => JSON.stringify({ facts })
const fact = (kind: string, ...items: readonly unknown[]): object => ({ t: 'probe', kind, source: 'x', at: 'x', items })
const ANSWER = { server: '10.42.0.8:53', role: 'cluster', name: 'clusterset.local', result: 'NOERROR', ms: 2 }
const CALL = { address: 'hub.example:7443', stage: 'tls', ms: 12 }
const IDENTITY = { begins: '2026-01-01T00:00:00Z', ends: '2027-01-01T00:00:00Z' }
const GOOD = said(fact('identity', IDENTITY), fact('broker-call', CALL), fact('dns-answer', ANSWER))

async function asked(objects: Objects, area?: Area, holder?: string): Promise<readonly PodCommand[]> {
  const commands: PodCommand[] = []
  const exec: Exec = (command) => (commands.push(command), done(said()))
  await probe(admin(exec, objects, holder), area)
  return commands
}

t.test('the agent that acts is asked once, about the broker and each server that is in use', async (t) => {
  const [command, ...others] = await asked(OBJECTS)
  t.strictSame(others, [])
  t.strictSame(
    { ...command, timeoutMs: undefined },
    {
      namespace: 'sealane-system',
      pod: 'sealane-agent-b',
      container: 'agent',
      command: ['sealane', 'machine-facts', '--broker', ...DNS_WORDS],
      timeoutMs: undefined,
    },
  )
  const facts = await probe(admin(() => done(GOOD)))
  const at = { source: 'pod sealane-agent-b', at: String }
  t.match(facts, [
    { t: 'probe', kind: 'identity', ...at, items: [IDENTITY] },
    { t: 'probe', kind: 'broker-call', ...at, items: [CALL] },
    { t: 'probe', kind: 'dns-answer', ...at, items: [ANSWER] },
  ])
})

t.test('the resolver of the pod, which a pod of an earlier release does not report', async (t) => {
  const resolv = (more: object) =>
    probe(admin(() => done(JSON.stringify({ ...(JSON.parse(GOOD) as object), ...more }))))
  const kinds = async (more: object) =>
    (await resolv(more)).filter((one) => one.t === 'probe' && one.kind === 'resolver')
  t.match(await kinds({ resolvConf: 'search a\n' }), [
    { items: [{ place: 'pod', name: 'pod sealane-agent-b', text: 'search a\n' }] },
  ])
  t.same(await kinds({}), [])
  t.same(await kinds({ resolvConf: ['x'] }), [])
  const [long] = await kinds({ resolvConf: 'x'.repeat(100_000) })
  t.ok(JSON.stringify(long).length < 10_000, 'a pod cannot fill the memory')
})

t.test('which pod', async (t) => {
  const rows: readonly (readonly [pods: readonly ManifestObject[], holder: string, pod: string | undefined])[] = [
    [[agent('b'), agent('a')], '', 'a'],
    [[agent('a', { ready: false }), agent('b')], 'a-01', 'a'],
    [[agent('a', { ready: false }), agent('b')], 'c-01', 'b'],
    [[agent('a', { ready: false })], '', 'a'],
    [[agent('a', { going: true }), agent('b', { phase: 'Pending' })], 'a-01', undefined],
    [[], '', undefined],
  ]
  for (const [pods, holder, pod] of rows) {
    const objects = { ...OBJECTS, 'sealane-system/Pod': pods }
    t.equal((await asked(objects, undefined, holder))[0]?.pod, pod)
    if (pod !== undefined) continue
    t.match(await probe(admin(() => done(GOOD), objects)), [{ t: 'unanswered', needed: false, message: /no pod/ }])
  }
})

t.test('an area', async (t) => {
  t.strictSame((await asked(OBJECTS, 'broker'))[0]?.command, ['sealane', 'machine-facts', '--broker'])
  t.strictSame((await asked(OBJECTS, 'dns'))[0]?.command, ['sealane', 'machine-facts', ...DNS_WORDS])
  t.strictSame(await asked(OBJECTS, 'lanes'), [])
  t.strictSame(await asked({ 'sealane-system/Pod': [agent('a')] }, 'dns'), [], 'nobody is known to be asked')
})

t.test('what may not be listed is a fact, and the rest is asked', async (t) => {
  const objects = { ...OBJECTS }
  delete (objects as Record<string, unknown>)['kube-system/EndpointSlice']
  const facts = await probe(admin(() => done(GOOD.replace('10.42.0.8:53', '10.42.0.11:5353')), objects))
  t.match(
    facts.filter((one) => one.t === 'unanswered'),
    [{ reason: 'RightMissing', message: /list services and endpointslices.* in namespace kube-system is needed$/ }],
  )
  t.equal(facts.length, 4)
  t.match(await probe(admin(() => done(GOOD), {})), [
    { what: 'Pods of agents', reason: 'RightMissing' },
    { what: 'DnsServers of kube-system', reason: 'RightMissing' },
    { what: 'DnsServers of sealane-system', reason: 'RightMissing' },
  ])
})

t.test('only so many servers, and none that is no address', async (t) => {
  const addresses = Array.from({ length: 40 }, (_, i) => ({ addresses: [`10.42.1.${i}`] }))
  const odd = [{ addresses: ['dns.example'] }, { addresses: 'x' }, { addresses: [7] }, null, 7, {}]
  const many = object('EndpointSlice', 'kube-dns-x', { endpoints: [...odd, ...addresses], ports: [UDP] })
  const headless = object('Service', 'x', { spec: { clusterIP: 'None', ports: [UDP] } })
  const objects = {
    ...OBJECTS,
    'kube-system/EndpointSlice': [many],
    'kube-system/Service': [headless, object('S', 'y')],
  }
  const [command] = await asked(objects)
  const words = command?.command.filter((word) => word.startsWith('cluster=')) ?? []
  t.equal(words.length, 24)
  t.match(
    words,
    Array.from({ length: 24 }, () => /^cluster=10\.42\.1\.\d+:53$/),
  )
  t.match(await probe(admin(() => done(said()), objects)), [
    { t: 'unanswered', message: '16 DNS servers of kube-system were not queried, because the limit is 24' },
  ])
})

t.test('a pod that answers otherwise is one fact without an answer', async (t) => {
  const rows: readonly (readonly [name: string, exec: Exec, message: RegExp])[] = [
    ['another release', () => done('', 2, "sealane: unknown option '--broker'\n"), /ended with 2: .*--broker/],
    ['no JSON', () => done('this is none'), /^its output is "this is none": expected facts as JSON$/],
    ['a kernel', () => done(said(fact('host', { node: 'x', devices: [], sysctls: {}, disks: [] }))), /expected/],
    ['settings', () => done(said(fact('settings', { listen: [], upstreams: [] }))), /expected/],
    ['objects', () => done(said({ t: 'objects', kind: 'Pod', items: [] })), /expected/],
    ['a server that was not asked', () => done(said(fact('dns-answer', { ...ANSWER, server: '1.1.1.1:53' }))), /exp/],
    ['one server twice', () => done(said(fact('dns-answer', ANSWER), fact('dns-answer', ANSWER))), /expected/],
    ['a result that is no text', () => done(said(fact('dns-answer', { ...ANSWER, result: 7 }))), /expected/],
    ['a negative time', () => done(said(fact('broker-call', { ...CALL, ms: -1 }))), /expected/],
    ['an unknown stage', () => done(said(fact('broker-call', { ...CALL, stage: 'all' }))), /expected/],
    ['many calls', () => done(said(...Array.from({ length: 13 }, () => fact('broker-call', CALL)))), /expected/],
    ['many calls in one', () => done(said(fact('broker-call', ...Array.from({ length: 13 }, () => CALL)))), /exp/],
    ['many facts', () => done(said(...Array.from({ length: 101 }, () => fact('dns-answer')))), /expected/],
    ['a refusal', () => Promise.reject(new ClusterApiError('Forbidden', 'no')), /create pods\/exec/],
  ]
  for (const [name, exec, message] of rows) {
    t.match(
      await probe(admin(exec)),
      [{ t: 'unanswered', needed: false, source: 'pod sealane-agent-b', message }],
      name,
    )
  }
  const unasked = await probe(
    admin(() => done(GOOD)),
    'dns',
  )
  t.match(unasked, [{ t: 'unanswered' }], 'it was not to call the broker')
})

t.test('role, name and source are those of the question; nothing else that it says is passed on', async (t) => {
  const odd = { ...ANSWER, role: 'upstream', name: 'evil.example', secret: 'KEY' }
  const facts = await probe(
    admin(() =>
      done(
        said(
          { ...fact('dns-answer', odd), source: 'API server', at: '1999-01-01T00:00:00Z' },
          fact('broker-call', { ...CALL, secret: 'KEY' }),
          fact('identity', { ...IDENTITY, key: 'KEY' }, { ...IDENTITY, ends: 'x' }),
          { t: 'unanswered', what: 'Identity', reason: 'RightMissing', message: 'no', needed: true },
        ),
      ),
    ),
  )
  const source = 'pod sealane-agent-b'
  t.match(facts, [
    { source, items: [{ role: 'cluster', name: 'clusterset.local' }] },
    { source, items: [CALL] },
    { source, items: [IDENTITY] },
    { source, what: 'Identity (from pods)', needed: false },
  ])
  t.notMatch(JSON.stringify(facts), /KEY|1999|evil/)
})

t.test('whatever a pod says, only facts come of it that were asked for', async () => {
  const item = fc.record({
    server: fc.constantFrom('10.42.0.8:53', '10.42.0.7:53', '1.1.1.1:53'),
    role: fc.string(),
    name: fc.string(),
    result: fc.string(),
    address: fc.string(),
    stage: fc.constantFrom('nothing', 'tcp', 'tls', 'x'),
    begins: fc.string(),
    ends: fc.string(),
    ms: fc.oneof(fc.nat(), fc.integer()),
  })
  const one = fc.record({
    t: fc.constantFrom('probe', 'unanswered', 'objects', 'report'),
    kind: fc.constantFrom('dns-answer', 'broker-call', 'identity', 'host', 'settings', 'x'),
    items: fc.array(fc.oneof(item, fc.anything()), { maxLength: 3 }),
  })
  const text = fc.oneof(
    fc.string(),
    fc.json(),
    fc.array(one, { maxLength: 4 }).map((facts) => JSON.stringify({ facts })),
  )
  await fc.assert(
    fc.asyncProperty(text, async (stdout) => {
      const facts = await probe(admin(() => done(stdout)))
      return facts.every((found) => {
        if (found.t === 'unanswered') return !found.needed
        if (found.t !== 'probe' || found.source !== 'pod sealane-agent-b') return false
        if (found.kind !== 'dns-answer') return found.kind === 'broker-call' || found.kind === 'identity'
        return found.items.every((answer) => DNS_WORDS.includes(`cluster=${(answer as { server: string }).server}`))
      })
    }),
  )
})

/** The queries that diagnose makes in the pods of a cluster, and the findings from each answer. */
import fc from 'fast-check'
import t from 'tap'
import { SILENT_PROGRESS } from '../../../cli/status/probes/progress.ts'
import { podProbes, readFromRouteAgents } from '../../../cli/status/probes/pod-probes.ts'
import type { ClusterAdmin } from '../../../cli/context/cluster-admin.ts'
import type { Area } from '../../../explain/facts/finding.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import type { CommandResult, PodCommand } from '../../../kubeapi/kube/http/pod-exec.ts'

const HOST = {
  node: 'whoever I say',
  devices: [],
  sysctls: { 'net/ipv4/ip_forward': '0' },
  disks: [{ path: '/var/lib/sealane', used: 9, limit: 10 }],
}
const GOOD = JSON.stringify({ facts: [{ t: 'probe', kind: 'host', source: 'x', at: 'x', items: [HOST] }] })

interface PodInit {
  readonly phase?: string
  readonly going?: boolean
}

function pod(
  name: string,
  node: string | undefined,
  { phase = 'Running', going = false }: PodInit = {},
): ManifestObject {
  const metadata = { name, ...(going ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}) }
  return { apiVersion: 'v1', kind: 'Pod', metadata, spec: { nodeName: node }, status: { phase } }
}

type Exec = (command: PodCommand) => Promise<CommandResult>

function admin(routeAgents: readonly ManifestObject[], exec: Exec, gateways: readonly ManifestObject[] = []) {
  return {
    title: 'context "c1"',
    list: (_: string, __: string, { labelSelector = '' }: { readonly labelSelector?: string }) =>
      Promise.resolve(labelSelector.includes('component=gateway') ? gateways : routeAgents),
    exec,
  } as unknown as ClusterAdmin
}

const done = (stdout: string, status = 0, stderr = ''): Promise<CommandResult> =>
  Promise.resolve({ status, stdout, stderr })

function probe(of: ClusterAdmin, area?: Area) {
  return podProbes(of, { area, progress: SILENT_PROGRESS, signal: new AbortController().signal })
}

t.test('each node is asked once, in its own pod, and is called what Kubernetes calls it', async (t) => {
  const asked: PodCommand[] = []
  const exec: Exec = (command) => {
    asked.push(command)
    return done(GOOD)
  }
  const agents = [
    pod('ra-w2', 'w2'),
    pod('ra-w1', 'w1'),
    pod('ra-g1', 'g1'),
    pod('ra-old', 'w3', { going: true }),
    pod('ra-new', 'w4', { phase: 'Pending' }),
    pod('ra-nowhere', undefined),
  ]
  const facts = await probe(admin(agents, exec, [pod('gw', 'g1')]))
  t.strictSame(
    asked.map(({ pod }) => pod),
    ['ra-g1', 'ra-w1', 'ra-w2'],
    'gateways first',
  )
  t.strictSame(
    { ...asked[0], timeoutMs: undefined },
    {
      namespace: 'sealane-system',
      pod: 'ra-g1',
      container: 'routeagent',
      command: ['sealane', 'machine-facts', '--node', 'g1', '--folder', '/var/lib/sealane'],
      timeoutMs: undefined,
    },
  )
  t.strictSame(
    facts.map((fact) => (fact.t === 'probe' ? fact.items.map((item) => (item as { node: string }).node) : fact)),
    [['g1'], ['w1'], ['w2']],
  )
  t.match(facts[0], {
    t: 'probe',
    kind: 'host',
    source: 'pod ra-g1',
    items: [HOST.disks].map(() => ({ ...HOST, node: 'g1' })),
  })
})

t.test('parts of the node say what they may not do, and no more about others', async (t) => {
  const refused = [
    { code: 'PartForbidden', what: 'patch gateways.sealane.io/status', places: 1, since: 'x', last: 'x' },
  ]
  const broker = { publish: 'live', watch: 'live', since: 'x', addresses: 1, failing: 0 }
  const report = (part: string) => ({
    ...{ t: 'report', source: 'me', at: 'x' },
    report: { part, name: 'whoever I say', version: '0.1.0', ready: false, refused, broker },
  })
  const good = JSON.parse(GOOD) as { facts: object[] }
  const said = (...parts: string[]): string => JSON.stringify({ facts: [...good.facts, ...parts.map(report)] })
  const agents = ['g1', 'w1', 'w2'].map((node) => pod(`ra-${node}`, node))
  const facts = await probe(
    admin(agents, ({ pod: name }) => done(said(...(name === 'ra-g1' ? ['gateway'] : []), 'routeagent'))),
  )
  t.strictSame(
    facts.flatMap((fact) => (fact.t === 'report' ? [fact] : [])).map(({ source, report }) => ({ source, ...report })),
    [
      ['gateway', 'g1'],
      ['routeagent', 'g1'],
      ['routeagent', 'w1'],
      ['routeagent', 'w2'],
    ].map(([part, node]) => ({
      ...{ source: `pod ra-${node}`, part, name: node, version: '0.1.0', ready: false, refused },
    })),
  )
  for (const part of ['agent', 'dns', 'site', 'cli', 'broker']) {
    const [fact] = await probe(admin(agents.slice(0, 1), () => done(said(part))))
    t.match(fact, { t: 'unanswered', reason: 'NotAnswered' }, `no pod of a route agent speaks for ${part}`)
  }
  const strange = JSON.stringify({ facts: [...good.facts, { t: 'report', report: { status: 'ok' } }, { t: 'report' }] })
  t.match(await probe(admin(agents.slice(0, 1), () => done(strange))), [{ t: 'probe' }], 'it is no part of ours')
  const long = {
    ...report('gateway').report,
    refused: [{ ...refused[0], by: `\u001b[2J${'x'.repeat(9999)}`, more: 'y' }],
  }
  const [, fact] = await probe(
    admin(agents.slice(0, 1), () => done(JSON.stringify({ facts: [...good.facts, { t: 'report', report: long }] }))),
  )
  t.match(fact, { report: { refused: [{ by: /^\?\[2Jx{190,196}…$/, more: undefined }] } })
})

t.test('what was not answered is a fact, and the others count', async (t) => {
  const answers: Readonly<Record<string, Exec>> = {
    a: () => done('', 2, "sealane: unknown command 'machine-facts'\n"),
    b: () => done('this is none'),
    c: () => Promise.reject(new ClusterApiError('Forbidden', 'pods "ra-c" is forbidden')),
    d: () => done(GOOD),
    e: () =>
      done(
        JSON.stringify({ facts: [{ t: 'unanswered', what: 'Firewall', reason: 'RightMissing', message: 'no nft' }] }),
      ),
  }
  const agents = Object.keys(answers).map((node) => pod(`ra-${node}`, node))
  const facts = await probe(admin(agents, (command) => answers[command.pod.slice(3)]!(command)))
  const reported = facts.map((fact) =>
    fact.t === 'unanswered' ? `${fact.what}: ${fact.reason}: ${fact.message}` : fact.t,
  )
  t.strictSame(reported.sort(), [
    'Firewall (e): RightMissing: no nft',
    `Host a: NotAnswered: its command ended with 2: sealane: unknown command 'machine-facts'`,
    'Host b: NotAnswered: its output is "this is none": expected facts as JSON',
    'Host c: RightMissing: pods "ra-c" is forbidden; the right to get and create pods/exec in namespace sealane-system is needed',
    'probe',
  ])
  t.ok(facts.every((fact) => fact.t !== 'unanswered' || !fact.needed))
})

t.test('who may not list pods, areas that need no kernel, and too many nodes', async (t) => {
  const forbidden = {
    ...admin([], () => done(GOOD)),
    list: () => Promise.reject(new ClusterApiError('Forbidden', 'no')),
  }
  t.match(await probe(forbidden), [{ t: 'unanswered', reason: 'RightMissing' }])
  let calls = 0
  const many = Array.from({ length: 45 }, (_, i) => pod(`ra-${i}`, `n${String(i).padStart(2, '0')}`))
  const counting = admin(many, () => {
    calls += 1
    return done(GOOD)
  })
  t.strictSame(await probe(counting, 'membership'), [])
  t.equal(calls, 0)
  const facts = await probe(counting, 'host')
  t.equal(calls, 40)
  t.match(
    facts.filter((fact) => fact.t === 'unanswered'),
    [{ what: 'Host others', message: /^5 nodes were not examined, because the limit is 40: n40 and/ }],
  )
})

t.test('whatever a pod says, facts come of it that are about its node', async () => {
  const said = fc.oneof(
    fc.string(),
    fc.json(),
    fc
      .record({
        t: fc.constantFrom('probe', 'unanswered', 'objects', 'report'),
        kind: fc.string(),
        items: fc.array(fc.anything()),
      })
      .map((fact) => JSON.stringify({ facts: [fact] })),
    fc
      .record({ node: fc.string(), devices: fc.constant([]), sysctls: fc.dictionary(fc.string(), fc.string()) })
      .map((item) => JSON.stringify({ facts: [{ t: 'probe', kind: 'host', items: [{ ...item, disks: [] }] }] })),
  )
  await fc.assert(
    fc.asyncProperty(said, async (stdout) => {
      const facts = await probe(admin([pod('ra', 'n1')], () => done(stdout)))
      return facts.every((fact) =>
        fact.t === 'probe'
          ? fact.kind === 'host' && fact.items.every((item) => (item as { node: string }).node === 'n1')
          : fact.t === 'unanswered' && !fact.needed,
      )
    }),
  )
})

t.test('answers of a command: each node has its own failure, and none is left out in silence', async (t) => {
  const answers: Readonly<Record<string, Exec>> = {
    n00: () => done('7'),
    n01: () => done('of another release'),
    n02: () => done('', 2, 'unknown command\n'),
    n03: () => Promise.reject(new ClusterApiError('Forbidden', 'pods "ra-3" is forbidden')),
  }
  const many = Array.from({ length: 45 }, (_, i) => `n${String(i).padStart(2, '0')}`).map((node) => pod(node, node))
  const remarks: string[] = []
  const read = (text: string): number => {
    if (!/^\d+$/.test(text)) throw new Error('expected a number')
    return Number(text)
  }
  const reading = { command: ['sealane', 'x'], read, remark: (line: string) => remarks.push(line) }
  const found = await readFromRouteAgents(
    admin(many, (command) => (answers[command.pod] ?? (() => done('1')))(command)),
    reading,
    new AbortController().signal,
  )
  t.equal(found.length, 37)
  t.same(
    found.find(({ node }) => node === 'n00'),
    { node: 'n00', value: 7 },
  )
  t.same(remarks.sort(), [
    '5 nodes were not asked, because the limit is 40: n40 and those after it\n',
    'node n01: expected a number\n',
    'node n02: unknown command\n',
    'node n03: pods "ra-3" is forbidden\n',
  ])
})

t.test('without the right to run commands in pods, the first refusals are the last questions', async (t) => {
  const many = Array.from({ length: 45 }, (_, i) => `n${String(i).padStart(2, '0')}`).map((node) => pod(node, node))
  let asked = 0
  const exec: Exec = () => {
    asked += 1
    return Promise.reject(new ClusterApiError('Forbidden', 'cannot create resource "pods/exec"'))
  }
  const remarks: string[] = []
  const reading = { command: ['sealane', 'x'], read: Number, remark: (line: string) => remarks.push(line) }
  const { signal } = new AbortController()
  await t.rejects(readFromRouteAgents(admin(many, exec), reading, signal), { code: 'Forbidden', message: /pods\/exec/ })
  t.ok(asked <= 8, `${asked} questions`)
  t.match(remarks, [/5 nodes were not asked/], 'the limit comes first')

  const late = Promise.withResolvers<CommandResult>()
  const mixed = readFromRouteAgents(
    admin(many, ({ pod: name }) => {
      if (name === 'n01') return Promise.reject(new ClusterApiError('Forbidden', 'not this one'))
      if (name === 'n00') return late.promise
      return new Promise((resolve) => void late.promise.then(() => resolve({ status: 0, stdout: '1', stderr: '' })))
    }),
    reading,
    signal,
  )
  setImmediate(() => void done('7').then(late.resolve))
  t.equal((await mixed).length, 39, 'all others are asked')
  t.match(remarks.slice(1), [/not asked/, /node n01: not this one/])
})

/**
 * Whole runs on two clusters in memory, whose pods a fake plays: the rows of each kind of member, and that nothing is
 * left, wherever the run is interrupted.
 */
import t, { type Test } from 'tap'
import { msText } from '../../../cli/status/verify/check-outcome.ts'
import { PROBE_LABEL, PROBE_LABEL_VALUE, UNTIL_ANNOTATION } from '../../../cli/status/verify/plan-objects.ts'
import type { ProbeCall, ProbeResult } from '../../../cli/status/verify/probe-wire.ts'
import type { ProbeCaller, Drain } from '../../../cli/status/verify/run-verify.ts'
import {
  type SessionInit,
  benchmarkClusters,
  sessionNames,
  verifyClusters,
  verifyFromSite,
  verifyService,
} from '../../../cli/status/verify/verify-session.ts'
import { endLeftDrains, siteGateways } from '../../../cli/status/verify/site-gateways.ts'
import type { CommandResult, PodCommand } from '../../../kubeapi/kube/http/pod-exec.ts'
import type { ObjectRef } from '../../../kubeapi/kube/kinds.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { LABEL_DRAIN, LABEL_GATEWAY } from '../../../model/lanes/lanes.ts'
import { drainGateway, undrainGateway } from '../../../cli/cluster/drain-gateway.ts'
import { messageOf } from '../../../runtime/errors.ts'
import { Reviews, allAsked, written } from '../../support/asked-rights.ts'
import { FastClock } from '../../support/fast-clock.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'

const RUN = '0123456789abcdef'
const SEALANE = 'sealane.io/v1alpha1'

interface ClusterRow {
  readonly id: string
  readonly exposure?: 'exports' | 'pods' | 'nothing'
  readonly pod: string
  readonly ip: string
}

/** A member whose controllers and pods answer at once. */
class FakeMember extends MemoryAdmin {
  readonly row: ClusterRow
  other: FakeMember | undefined
  /** Called before each request that changes something, with how many there were. */
  before: (count: number) => void = () => undefined
  podStatus: object | undefined
  /** Changes the answer to a call. */
  spoil: (call: ProbeCall, result: ProbeResult) => ProbeResult = (_call, result) => result
  #count = 0

  constructor(row: ClusterRow) {
    super([
      object(SEALANE, 'Membership', 'self', { clusterId: row.id, exposure: row.exposure ?? 'exports' }),
      object(SEALANE, 'Cluster', row.id, { id: row.id, index: 1, podCIDRs: ['10.40.0.0/13'], globalCIDRs: [] }),
      object(SEALANE, 'Gateway', 'gw1', {}),
      object(SEALANE, 'Gateway', 'gw2', {}),
      gatewayNode('gw1'),
      gatewayNode('gw2'),
      {
        ...object('apps/v1', 'Deployment', 'sealane-agent', {
          template: { spec: { containers: [{ image: 'sealane:1', imagePullPolicy: 'Never' }] } },
        }),
        metadata: { name: 'sealane-agent', namespace: 'sealane-system' },
      },
      {
        ...object('v1', 'Pod', 'sealane-routeagent-x', { nodeName: 'n1' }),
        metadata: {
          name: 'sealane-routeagent-x',
          namespace: 'sealane-system',
          labels: { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'routeagent' },
        },
        status: { phase: 'Running' },
      },
    ])
    this.row = row
    this.run = (command) => this.#play(command)
  }

  override async apply(given: ManifestObject, options: { readonly dryRun: boolean }) {
    this.#step()
    const status =
      given.kind === 'Pod'
        ? { spec: { ...(given['spec'] as object), nodeName: 'n1' }, status: this.podStatus ?? podStatus(this.row.pod) }
        : {}
    const result = await super.apply({ ...given, ...status }, options)
    if (given.kind === 'ServiceExport') this.#exported(given.metadata)
    return result
  }

  override async merge(ref: ObjectRef, patch: unknown): Promise<void> {
    this.#step()
    await super.merge(ref, patch)
  }

  /** A namespace takes everything in it along. */
  override async remove(ref: ObjectRef): Promise<boolean> {
    if (ref.kind === 'Namespace') {
      const requests = this.done.length
      for (const one of await this.probeObjects()) {
        if (one.metadata.namespace === ref.name) await super.remove({ ...one, ...one.metadata })
      }
      // The server does that, and not the command.
      this.done.length = requests
    }
    return super.remove(ref)
  }

  async probeObjects(): Promise<readonly ManifestObject[]> {
    const kinds = [
      ['v1', 'Namespace'],
      ['v1', 'Pod'],
      ['v1', 'Service'],
      ['multicluster.x-k8s.io/v1beta1', 'ServiceExport'],
      [SEALANE, 'AccessPolicy'],
    ] as const
    const labelSelector = `${PROBE_LABEL}=${PROBE_LABEL_VALUE}`
    return (await Promise.all(kinds.map(([version, kind]) => this.list(version, kind, { labelSelector })))).flat()
  }

  #step(): void {
    this.#count += 1
    this.before(this.#count)
  }

  #exported({ name, namespace = '' }: ManifestObject['metadata']): void {
    if (this.row.exposure === 'nothing') return
    const spec = name.endsWith('headless')
      ? { type: 'Headless', ports: [] }
      : { type: 'ClusterSetIP', ips: [this.row.ip], ports: [] }
    const made = object('multicluster.x-k8s.io/v1beta1', 'ServiceImport', name, spec)
    const status = { clusters: [{ cluster: this.row.id }] }
    this.other?.put({ ...made, metadata: { name, namespace }, status })
  }

  async #play({ command }: PodCommand): Promise<CommandResult> {
    this.#step()
    const calls = command.slice(command.indexOf('--run') + 2).map((one) => JSON.parse(one) as ProbeCall)
    const results = await Promise.all(calls.map(async (call) => this.spoil(call, await this.#answer(call))))
    return { status: 0, stdout: results.map((one) => `${JSON.stringify(one)}\n`).join(''), stderr: '' }
  }

  async #answer(call: ProbeCall): Promise<ProbeResult> {
    const { other, row } = this
    if (other === undefined) throw new Error('there is no other member')
    const silent = { ok: false, failure: 'timeout', message: 'no answer' } as const
    const offered = (await other.list(SEALANE, 'AccessPolicy', {})).some(({ spec }) => {
      return (spec as { readonly from: readonly unknown[] }).from.length > 0
    })
    switch (call.op) {
      case 'resolve':
        return {
          ok: true,
          value: { addresses: [other.row.ip], srv: [{ name: call.name, port: 7203 }], before: [], ndots: 1 },
        }
      case 'hello': {
        const isHidden = call.to.port === 7204
        if (isHidden ? other.row.exposure !== 'pods' : !offered) return silent
        return { ok: true, value: { member: other.row.id, pod: 'sealane-probe-server', from: row.pod, ms: 1 } }
      }
      case 'refused':
        return { ok: true, value: offered ? { ms: 45_000 } : { ms: 1, failure: 'timeout' } }
      case 'connect':
        return { ok: true, value: { ms: 1 } }
      case 'bulk':
        return { ok: true, value: { ms: 10, bytes: call.bytes, isSame: true } }
      case 'datagrams':
        return { ok: true, value: { passed: call.sizes } }
      case 'throughput':
        return { ok: true, value: { ms: 1000, bytes: 125_000_000 } }
      case 'latency':
        return { ok: true, value: { p50: 1, p99: 2, p999: 3, count: call.count } }
      case 'loss':
        return { ok: true, value: { sent: call.count, lost: 0, jitterMs: 0.1 } }
      case 'steady':
        return { ok: true, value: { sent: 500, lost: 0, longestMs: 20 } }
    }
  }
}

function object(apiVersion: string, kind: string, name: string, spec: object): ManifestObject {
  return { apiVersion, kind, metadata: { name }, spec }
}

function gatewayNode(name: string, labels: Readonly<Record<string, string>> = {}): ManifestObject {
  return { apiVersion: 'v1', kind: 'Node', metadata: { name, labels: { [LABEL_GATEWAY]: 'true', ...labels } } }
}

/** Drains and takes back as the commands do. */
const REAL: Drain = {
  drain: (admin, node, init) =>
    drainGateway(admin, node, { clock: new FastClock(100), say: () => undefined, ...init, ...DRAIN_LIMITS }),
  undrain: (admin, node, signal) => undrainGateway(admin, node, { say: () => undefined, signal }),
}
const DRAIN_LIMITS = { timeoutMs: 1000, force: false }

/** Sets the condition that the gateway itself sets after the label, and takes it back. */
function obeys(member: FakeMember): void {
  const merge = member.merge.bind(member)
  member.merge = async (ref, patch) => {
    await merge(ref, patch)
    if (ref.kind !== 'Node') return
    const isDrained = (await member.get(ref))?.metadata.labels?.[LABEL_DRAIN] !== undefined
    const conditions = isDrained ? [{ type: 'Drained', status: 'True' }] : []
    member.put({ ...object(SEALANE, 'Gateway', ref.name, {}), status: { conditions } })
  }
}

async function labelOf(member: FakeMember, name: string): Promise<string | undefined> {
  return (await member.get({ apiVersion: 'v1', kind: 'Node', name }))?.metadata.labels?.[LABEL_DRAIN]
}

function podStatus(ip: string): object {
  return { phase: 'Running', podIPs: [{ ip }], conditions: [{ type: 'Ready', status: 'True' }] }
}

function pair(rows: Partial<ClusterRow> = {}): readonly [FakeMember, FakeMember] {
  const one = new FakeMember({ id: 'c1', pod: '10.42.0.9', ip: '245.0.0.5', ...rows })
  const two = new FakeMember({ id: 'c2', pod: '10.44.0.9', ip: '245.0.0.6', ...rows, ...other(rows) })
  one.other = two
  two.other = one
  return [one, two]
}

const other = ({ exposure }: Partial<ClusterRow>): Partial<ClusterRow> => (exposure === undefined ? {} : { exposure })

function session(more: Partial<SessionInit> = {}): SessionInit & { readonly said: string[] } {
  const said: string[] = []
  const say = (text: string): void => void said.push(text)
  const signal = new AbortController().signal
  return { clock: new FastClock(100), signal, say, timeoutMs: 2000, run: RUN, said, ...more }
}

async function nothingIsLeft(t: Test, members: readonly FakeMember[], why: string): Promise<void> {
  for (const member of members) t.same(await member.probeObjects(), [], `${why}: nothing is left in ${member.row.id}`)
}

t.test('both directions, and everything is removed', async (t) => {
  const members = pair()
  const init = session()
  const rows = await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
  t.same(
    rows.filter(({ result }) => result === 'fail'),
    [],
  )
  const of = (way: string): readonly string[] =>
    rows.filter((row) => row.way === way).map(({ check, result }) => `${check} ${result}`)
  t.same(of('c1 → c2'), of('c2 → c1'))
  t.same(of('c1 → c2'), [
    ...['import', 'name', 'srv', 'search', 'tcp', 'udp', 'headless', 'large-tcp', 'large-udp', 'source'].map(
      (one) => `${one} pass`,
    ),
    ...[
      'pod-to-pod pass',
      'node-to-pod pass',
      'throughput pass',
      'failover skip',
      'policy-allowed pass',
      'policy-refused pass',
    ],
  ])
  await nothingIsLeft(t, members, 'after the run')
  const node = members[0].done.filter((one) =>
    one.startsWith('exec sealane-system/sealane-routeagent-x routeagent: sealane probe call'),
  )
  t.equal(node.length, 1, 'a node calls by the route agent')
})

t.test('what fails is named', async (t) => {
  const [one, two] = pair()
  one.spoil = (call, result) => {
    if (call.op === 'hello' && call.to.port === 7204) {
      return { ok: true, value: { member: 'c2', pod: 'p', from: '10.42.0.9', ms: 1 } }
    }
    if (call.op === 'hello' && call.protocol === 'udp') return { ok: false, failure: 'timeout', message: 'x' }
    return result
  }
  const init = session()
  const rows = await verifyClusters([one, two], { seconds: 1, leastBits: 2e9 }, sessionNames(init), init)
  t.same(
    rows
      .filter(({ way, result }) => way === 'c1 → c2' && result !== 'pass')
      .map(({ check, reason }) => `${check} ${reason}`),
    [
      'udp VerifyNotAnswered',
      'large-udp VerifySkipped',
      'pod-to-pod VerifyAnswered',
      'throughput VerifySlow',
      'failover VerifySkipped',
    ],
  )
})

t.test('members that expose all pods, or nothing', async (t) => {
  const all = session()
  const pods = await verifyClusters(pair({ exposure: 'pods' }), { seconds: 1 }, sessionNames(all), all)
  t.match(
    pods.find(({ check }) => check === 'pod-to-pod'),
    { result: 'pass', measured: msText(1) },
  )
  const none = await verifyClusters(pair({ exposure: 'nothing' }), { seconds: 1 }, sessionNames(all), all)
  t.same(
    none.map(({ check, result, reason }) => [check, result, reason]),
    Array.from({ length: 2 }, () => ['import', 'skip', 'VerifySkipped']),
  )
})

t.test('a gateway is drained and taken back, also when the drain fails', async (t) => {
  for (const fails of [false, true]) {
    const done: string[] = []
    const drain: Drain = {
      drain: async (admin, node, init) => {
        done.push(`drain ${node}`)
        await REAL.drain(admin, node, init)
        if (fails) throw new Error('it is the only one')
      },
      undrain: (admin, node, signal) => {
        done.push(`undrain ${node}`)
        return REAL.undrain(admin, node, signal)
      },
    }
    const members = pair()
    for (const member of members) obeys(member)
    const init = session({ drain })
    const rows = await verifyClusters(members, { seconds: 1, failover: drain }, sessionNames(init), init)
    t.same(done, ['drain gw1', 'undrain gw1', 'drain gw1', 'undrain gw1'])
    const row = rows.find(({ check }) => check === 'failover')
    t.match(row, fails ? { result: 'fail', reason: 'VerifyDrainFailed' } : { result: 'pass' })
    await nothingIsLeft(t, members, 'after a drain')
    for (const member of members) t.equal(await labelOf(member, 'gw1'), undefined, 'the label is gone')
  }
})

t.test('a gateway that an operator has drained stays drained', async (t) => {
  const run = async (drained: readonly string[], gateways: readonly string[]) => {
    const members = pair()
    for (const member of members) {
      obeys(member)
      for (const name of gateways) {
        member.put(object(SEALANE, 'Gateway', name, {}))
        member.put(gatewayNode(name, drained.includes(name) ? { [LABEL_DRAIN]: 'true' } : {}))
      }
    }
    const init = session({ drain: REAL })
    const rows = await verifyClusters(members, { seconds: 1, failover: REAL }, sessionNames(init), init)
    for (const member of members) {
      for (const name of drained) t.equal(await labelOf(member, name), 'true', `${name} stays drained`)
    }
    return { row: rows.find(({ check }) => check === 'failover'), said: init.said.join('') }
  }
  const three = await run(['gw1'], ['gw1', 'gw2', 'gw3'])
  t.equal(three.row?.result, 'pass')
  t.match(three.said, 'drains gateway gw2')
  t.match((await run(['gw1'], ['gw1', 'gw2'])).row, { result: 'skip', reason: 'OneGatewayOnly' })
})

t.test('a drain that somebody else begins meanwhile is not ended', async (t) => {
  const members = pair()
  const drain: Drain = {
    ...REAL,
    drain: async (admin, node, init) => {
      await admin.merge({ apiVersion: 'v1', kind: 'Node', name: node }, marked('true'), init.signal)
      await REAL.drain(admin, node, init)
    },
  }
  for (const member of members) obeys(member)
  const init = session({ drain })
  const rows = await verifyClusters(members, { seconds: 1, failover: drain }, sessionNames(init), init)
  t.match(
    rows.find(({ check }) => check === 'failover'),
    { result: 'skip', measured: 'gw1 was drained already' },
  )
  t.equal(await labelOf(members[1], 'gw1'), 'true')
})

const marked = (value: string | null) => ({ metadata: { labels: { [LABEL_DRAIN]: value } } })

t.test('a drain that cannot be ended is named, and the next run ends it', async (t) => {
  const members = pair()
  for (const member of members) obeys(member)
  const broken: Drain = { ...REAL, undrain: () => Promise.reject(new Error('the server is gone')) }
  const init = session({ drain: broken })
  const rows = await verifyClusters(members, { seconds: 1, failover: broken }, sessionNames(init), init)
  t.match(
    rows.find(({ check }) => check === 'failover'),
    { result: 'fail', reason: 'VerifyDrainFailed', measured: 'gateway gw1 stays drained' },
  )
  t.match(init.said.join(''), 'sealane gateway undrain gw1 --context c1')
  t.equal(await labelOf(members[1], 'gw1'), 'true')
  for (const member of members) {
    t.same((await member.probeObjects()).map(({ kind }) => kind).sort(), ['Namespace', 'Service'], 'the note stays')
  }
  // The drain cannot be ended yet: the run works, and the note stays.
  const second = session({ drain: broken, run: 'f'.repeat(16) })
  await verifyClusters(members, { seconds: 1 }, sessionNames(second), second)
  for (const member of members) t.equal((await member.probeObjects()).length, 2)
  const last = session({ drain: REAL, run: 'e'.repeat(16) })
  await verifyClusters(members, { seconds: 1 }, sessionNames(last), last)
  t.equal(await labelOf(members[1], 'gw1'), undefined)
  await nothingIsLeft(t, members, 'after the last run')
})

t.test('without the right to see nodes, the drain fails for that reason and nothing is undrained', async (t) => {
  const members = pair()
  const undrained: string[] = []
  const drain: Drain = { ...REAL, undrain: (_admin, node) => Promise.resolve(undrained.push(node)) }
  for (const member of members) {
    const get = member.get.bind(member)
    member.get = (ref) => (ref.kind === 'Node' ? Promise.reject(new Error('403 Forbidden')) : get(ref))
  }
  const init = session({ drain })
  const rows = await verifyClusters(members, { seconds: 1, failover: drain }, sessionNames(init), init)
  t.match(
    rows.find(({ check }) => check === 'failover'),
    { result: 'fail', reason: 'VerifyDrainFailed', measured: '403 Forbidden' },
  )
  t.same(undrained, [])
  await nothingIsLeft(t, members, 'after the drain that was not made')
})

t.test('an interrupt at any step leaves nothing', async (t) => {
  const dry = pair()
  let steps = 0
  for (const member of dry) member.before = () => (steps += 1)
  const init = session()
  await verifyClusters(dry, { seconds: 1 }, sessionNames(init), init)
  t.ok(steps > 24, `${steps} steps`)
  for (let at = 1; at <= steps; at += 1) {
    const stop = new AbortController()
    const members = pair()
    let count = 0
    for (const member of members) {
      member.before = () => {
        count += 1
        if (count === at) stop.abort(new Error('interrupted'))
      }
    }
    const own = session({ signal: stop.signal })
    const ended = await verifyClusters(members, { seconds: 1 }, sessionNames(own), own).then(
      () => 'done',
      (error: unknown) => messageOf(error),
    )
    // The last call ends the run anyway.
    if (at < steps) t.equal(ended, 'interrupted', `step ${at}`)
    const left = await Promise.all(members.map((member) => member.probeObjects()))
    if (left.flat().length > 0) t.same(left.flat(), [], `step ${at}`)
  }
})

t.test('in a namespace of the user, which stays, and beside which nothing is removed', async (t) => {
  const members = pair()
  for (const member of members) {
    member.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
    member.put({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'shop' } })
  }
  const init = session({ namespace: 'shop' })
  await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
  await nothingIsLeft(t, members, 'in a namespace of the user')
  for (const member of members) {
    t.ok(await member.get({ apiVersion: 'v1', kind: 'Namespace', name: 'shop' }))
    t.ok(await member.get({ apiVersion: 'v1', kind: 'Service', name: 'web', namespace: 'shop' }))
  }
  for (const [namespace, text] of [
    ['nowhere', /--namespace nowhere: not found/],
    ['kube-system', /--namespace kube-system is a system namespace/],
  ] as const) {
    const own = session({ namespace })
    await t.rejects(verifyClusters(pair(), { seconds: 1 }, sessionNames(own), own), { message: text })
  }
})

t.test('the remains of a killed run are removed, and its drain ends', async (t) => {
  const members = pair()
  const old = {
    name: 'sealane-probe-a',
    namespace: 'shop',
    labels: { [PROBE_LABEL]: PROBE_LABEL_VALUE },
    annotations: { [UNTIL_ANNOTATION]: '2020-01-01T00:00:00Z', 'sealane.io/probe-drained-node': 'gw2' },
  }
  members[0].put({ apiVersion: 'v1', kind: 'Service', metadata: old })
  const gone = { ...old, name: 'other', annotations: { ...old.annotations, 'sealane.io/probe-drained-node': 'gw9' } }
  members[0].put({ apiVersion: 'v1', kind: 'Service', metadata: gone })
  members[0].put(gatewayNode('gw2', { [LABEL_DRAIN]: 'true' }))
  const undrained: string[] = []
  const drain: Drain = {
    drain: () => Promise.resolve(),
    undrain: (_admin, node) => Promise.resolve(undrained.push(node)),
  }
  const init = session({ drain })
  await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
  t.same(undrained, ['gw2'])
  await nothingIsLeft(t, members, 'after a sweep')
  t.match(init.said.join(''), 'c1: removed 2 objects of a run that was killed')
})

t.test('what could not be removed is named with the commands and the time', async (t) => {
  for (const [namespace, command] of [
    [undefined, 'kubectl --context c1 delete namespace sealane-verify-01234567\n'],
    [
      'shop',
      'kubectl --context c1 delete serviceexports,accesspolicies,services,pods -n shop ' +
        `-l sealane.io/probe-run=${RUN}\n`,
    ],
  ] as const) {
    const members = pair()
    for (const member of members) member.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
    members[0].remove = () => Promise.reject(new Error('no answer'))
    const init = session(namespace === undefined ? {} : { namespace })
    await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
    t.match(init.said.join(''), `removes it; to do it now: ${command}`)
    t.match(init.said.join(''), /a run after \d{4}-[\dT:.-]+Z removes it/)
    if (namespace === undefined) continue
    const again = session({ namespace, run: 'f'.repeat(16) })
    await t.rejects(verifyClusters(members, { seconds: 1 }, sessionNames(again), again), {
      message: /another run uses namespace shop/,
      hint: /wait for its end, which is at \d{4}-[\dT:.-]+Z at the latest/,
    })
  }
})

t.test('an image that only the Secrets of the agent pull', async (t) => {
  for (const namespace of [undefined, 'shop']) {
    const members = pair()
    for (const member of members) {
      member.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
      member.put({
        ...object('apps/v1', 'Deployment', 'sealane-agent', {
          template: { spec: { containers: [{ image: 'sealane:1' }], imagePullSecrets: [{ name: 'mirror' }] } },
        }),
        metadata: { name: 'sealane-agent', namespace: 'sealane-system' },
      })
    }
    const waiting = { reason: 'ImagePullBackOff', message: 'no basic auth' }
    members[0].podStatus = { phase: 'Pending', containerStatuses: [{ state: { waiting } }] }
    const pods: ManifestObject[] = []
    const apply = members[0].apply.bind(members[0])
    members[0].apply = (given, options) => {
      if (given.kind === 'Pod') pods.push(given)
      return apply(given, options)
    }
    const init = session(namespace === undefined ? {} : { namespace })
    await t.rejects(verifyClusters(members, { seconds: 1 }, sessionNames(init), init), {
      reason: 'VerifyPodFailed',
      message: /ImagePullBackOff: no basic auth/,
      hint: namespace === undefined ? /Secret mirror: use --namespace/ : /see whether namespace shop has it/,
    })
    const named = pods.map(({ spec }) => (spec as { readonly imagePullSecrets?: unknown }).imagePullSecrets)
    t.same(named[0], namespace === undefined ? undefined : [{ name: 'mirror' }])
  }
})

t.test('who cannot take part', async (t) => {
  const [one] = pair()
  const init = session()
  await t.rejects(verifyClusters([one, one], { seconds: 1 }, sessionNames(init), init), {
    message: 'both ends are member c1: expected two members',
  })
  const [a, b] = pair()
  await b.remove({ apiVersion: SEALANE, kind: 'Membership', name: 'self' })
  await t.rejects(verifyClusters([a, b], { seconds: 1 }, sessionNames(init), init), {
    message: /this cluster is no member of a clusterset/,
  })
  t.same(await a.probeObjects(), [])
})

const SITE_CALLS: ProbeCaller['call'] = (_from, call: ProbeCall) => {
  const isRefused = call.op === 'connect' && call.to.port === 81
  const result: ProbeResult = isRefused
    ? { ok: false, failure: 'refused', message: 'no' }
    : call.op === 'resolve'
      ? { ok: true, value: { addresses: ['245.0.0.6'], srv: [{ name: 'x', port: 7203 }], before: [], ndots: 1 } }
      : call.op === 'connect'
        ? { ok: true, value: { ms: 1 } }
        : { ok: false, failure: 'timeout', message: 'silent' }
  return Promise.resolve(result as never)
}

const SITE: ProbeCaller = {
  id: 's1',
  kind: 'site',
  families: ['IPv4'],
  call: SITE_CALLS,
  imported: () => Promise.resolve(['245.0.0.6']),
  sources: () => undefined,
}

t.test('from a site to a cluster, and what a site cannot show', async (t) => {
  const [, two] = pair()
  const init = session()
  const rows = await verifyFromSite(SITE, two, { seconds: 1 }, sessionNames(init), init)
  const of = (check: string): string => {
    return rows
      .filter((row) => row.check === check)
      .map(({ way, result }) => `${way} ${result}`)
      .join()
  }
  t.equal(of('import'), 's1 → c2 pass,c2 → s1 skip')
  t.equal(of('node-to-pod'), 's1 → c2 skip')
  t.equal(of('tcp'), 's1 → c2 fail')
  t.notMatch(two.done.join(), 'sealane-probe-client', 'no pod calls')
  t.same(await two.probeObjects(), [])
})

t.test('a service of the user from a site', async (t) => {
  const ports = [{ port: 80 }, { port: 81 }, { port: 53, protocol: 'UDP' }]
  const service = { namespace: 'shop', name: 'web', exporters: ['c2'], ips: ['245.0.0.6'], ports }
  const rows = await verifyService(SITE, service, session())
  t.same(
    rows.map(({ check, result, reason = '' }) => `${check} ${result} ${reason}`),
    [
      ...['import pass ', 'name pass ', 'tcp pass ', 'tcp fail VerifyNotAnswered'],
      ...['failover', 'udp', 'large-tcp', 'large-udp', 'source', 'throughput', 'policy-refused'].map(
        (one) => `${one} skip VerifySkipped`,
      ),
    ],
  )
})

t.test('a gateway of the site is drained while its service is called', async (t) => {
  const service = { namespace: 'shop', name: 'web', exporters: ['c2'], ips: ['245.0.0.6'], ports: [{ port: 80 }] }
  const run = async (gateways: readonly string[], more: Partial<Drain> = {}, count = gateways.length) => {
    const [site] = pair()
    obeys(site)
    for (const name of ['gw1', 'gw2'].filter((one) => !gateways.includes(one))) {
      await site.remove({ apiVersion: SEALANE, kind: 'Gateway', name })
    }
    const init = session()
    const drain: Drain = { ...REAL, ...more }
    const side = siteGateways({
      ...{ id: 's1', admin: site, flags: ' --site s.yaml', say: init.say, now: () => 0 },
      drain: (at, node, by) => drain.drain(at, node, by),
      undrain: (at, node, by) => drain.undrain(at, node, by),
    })
    const calls: ProbeCall[] = []
    const call = (_from: string, one: ProbeCall) => {
      calls.push(one)
      return Promise.resolve(
        one.op === 'steady'
          ? { ok: true, value: { sent: 500, lost: 0, longestMs: 20 } }
          : SITE_CALLS('pod', one, init.signal),
      )
    }
    const caller: ProbeCaller = { ...SITE, call: call as ProbeCaller['call'], gateways: { count, side } }
    const rows = await verifyService(caller, service, init)
    const row = rows.find(({ check }) => check === 'failover')
    return { row, calls, said: init.said.join(''), label: await labelOf(site, 'gw1') }
  }
  const good = await run(['gw1', 'gw2'])
  t.match(good.row, { result: 'pass', measured: /0 of 500 calls lost.*; gw1 of s1 drained and taken back/ })
  t.match(
    good.calls.find(({ op }) => op === 'steady'),
    { isOpenOnly: true, to: { port: 80 } },
    'a service of the user is no probe',
  )
  t.match(good.said, 'if this command is killed now, end the drain with: sealane gateway undrain gw1 --site s.yaml')
  t.equal(good.label, undefined)
  t.match((await run(['gw1'])).row, { result: 'skip', reason: 'OneGatewayOnly' })
  t.match((await run(['gw1'], {}, 2)).row, { result: 'skip', reason: 'OneGatewayOnly' }, 'one has gone meanwhile')
  const broken = await run(['gw1', 'gw2'], { undrain: () => Promise.reject(new Error('no room')) })
  t.match(broken.row, { result: 'fail', reason: 'VerifyDrainFailed', measured: 'gateway gw1 stays drained' })
  t.match(
    broken.said,
    /gateway gw1 stays drained: no room\n {2}to end that: sealane gateway undrain gw1 --site s\.yaml/,
  )
})

t.test('a drain that a killed run has left at a site is ended by the next run', async (t) => {
  const [site] = pair()
  obeys(site)
  const said: string[] = []
  let nowMs = 0
  const init = {
    ...{
      id: 's1',
      admin: site,
      flags: ' --site s.yaml',
      say: (text: string) => void said.push(text),
      now: () => nowMs,
    },
    ...REAL,
  }
  const { signal } = new AbortController()
  const side = siteGateways(init)
  await side.drain('gw1', { signal, beforeMark: () => side.noteDrained('gw1', signal) })
  t.same(await endLeftDrains(init, signal), [], 'it may still run')
  t.match(said.pop(), /another run has drained gateway gw1; .* sealane gateway undrain gw1 --site s\.yaml/)
  t.equal(await labelOf(site, 'gw1'), 'true')
  nowMs = 200_000
  const broken = { ...init, undrain: () => Promise.reject(new Error('no room')) }
  t.same(await endLeftDrains(broken, signal), [])
  t.match(said.pop(), /gateway gw1 stays drained: no room/)
  t.same(await endLeftDrains(init, signal), ['gw1'])
  t.equal(await labelOf(site, 'gw1'), undefined)
  t.same(await endLeftDrains(init, signal), [], 'the note has gone')
  await site.merge({ apiVersion: 'v1', kind: 'Node', name: 'gw2' }, marked('true'))
  t.same(await endLeftDrains(init, signal), [])
  t.equal(await labelOf(site, 'gw2'), 'true', 'that of an operator stays')
})

t.test('a headless service has the families of its pods', async (t) => {
  const service = { namespace: 'shop', name: 'db', exporters: ['c2'], ips: [], ports: [{ port: 80 }] }
  const dual: ProbeCaller = { ...SITE, families: ['IPv4', 'IPv6'] }
  const rows = await verifyService(dual, service, session())
  t.same(
    rows
      .filter(({ result }) => result !== 'skip')
      .map(({ check, family = '-', result }) => `${check} ${family} ${result}`),
    ['import - pass', 'name 4 pass', 'tcp 4 pass'],
  )
})

t.test('the calls of a moment are made by one process', async (t) => {
  const members = pair()
  const init = session()
  await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
  const started = members[0].done.filter((one) => one.startsWith('exec ') && one.includes('sealane-probe-client'))
  t.equal(started.length, 4, 'names and calls, long calls, throughput, refusals')
})

t.test('the benchmark measures across and inside', async (t) => {
  const members = pair()
  const init = session()
  const all = await benchmarkClusters(members, { seconds: 1, pings: 10, node: 'n7' }, sessionNames(init), init)
  t.match(all, [
    {
      way: 'c1 → c2',
      oneStream: 1e9,
      eightStreams: 1e9,
      latency: { p999: 3, count: 10, asked: 10 },
      loss: { share: 0 },
      failed: [],
    },
    { way: 'inside c1', oneStream: 1e9 },
  ])
  t.match(init.said.join(''), 'inside c1: latency of 10 round trips')
  await nothingIsLeft(t, members, 'after a benchmark')
})

t.test('a run has asked for every right before its first write', async (t) => {
  const rows = [
    ['verify', {}, (pair, init) => verifyClusters(pair, { seconds: 1 }, sessionNames(init), init)],
    [
      'in a namespace of the user',
      { namespace: 'shop' },
      (pair, init) => {
        return verifyClusters(pair, { seconds: 1 }, sessionNames(init), init)
      },
    ],
    [
      'with a drain',
      {},
      (pair, init) => {
        return verifyClusters(pair, { seconds: 1, failover: REAL }, sessionNames(init), init)
      },
    ],
    [
      'with a drain that does not end',
      {},
      (pair, init) => {
        const failover = { ...REAL, undrain: () => Promise.reject(new Error('no room')) }
        return verifyClusters(pair, { seconds: 1, failover }, sessionNames(init), { ...init, drain: failover })
      },
    ],
    ['from a site', {}, (pair, init) => verifyFromSite(SITE, pair[1], { seconds: 1 }, sessionNames(init), init)],
    ['benchmark', {}, (pair, init) => benchmarkClusters(pair, { seconds: 1, pings: 1 }, sessionNames(init), init)],
  ] satisfies readonly (readonly [string, Partial<SessionInit>, Run])[]
  for (const [name, more, run] of rows) {
    await t.test(name, async (t) => {
      const members = pair()
      const reviews = members.map((member) => {
        obeys(member)
        member.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
        const one = new Reviews()
        one.watch(member)
        return one
      })
      await run(members, session({ drain: REAL, ...more }))
      for (const [i, member] of members.entries()) allAsked(t, member, reviews[i] as Reviews)
      t.ok(written(members[1]).length > 5, 'it did write')
      const drains = name.startsWith('with a drain')
      t.equal(reviews[1]?.asked.has('patch nodes in '), drains, 'what it does not do takes no right')
    })
  }
})

type Run = (members: readonly [FakeMember, FakeMember], init: SessionInit) => Promise<unknown>

t.test('who lacks a right changes nothing in either cluster, and reads all that is missing', async (t) => {
  const rows = [
    [['create pods'], [], /c1".* may not create pods in namespace \S+$/],
    [
      ['get pods/exec'],
      ['create pods/exec'],
      /get pods\/exec in namespace \S+;[^:]*c1".* create pods\/exec in namespace \S+$/,
    ],
    [[], ['delete namespaces', 'patch accesspolicies'], /delete namespaces/],
    [[], ['list serviceexports', 'get serviceimports'], /list serviceexports\S+; get serviceimports\S+ in namespace/],
    [['patch nodes'], ['patch nodes'], /patch nodes; .*patch nodes$/],
  ] as const
  for (const [one, two, message] of rows) {
    const members = pair()
    for (const right of one) members[0].denied.add(right)
    for (const right of two) members[1].denied.add(right)
    const init = session({ drain: REAL })
    await t.rejects(verifyClusters(members, { seconds: 1, failover: REAL }, sessionNames(init), init), {
      name: 'UserError',
      message,
      hint: /nothing was changed$/,
    })
    t.same(members.flatMap(written), [], String(message))
  }
})

t.test('commands in pods take what the server asks for, by its version', async (t) => {
  const rows = [
    ['v1.34.9', ['create pods/exec'], undefined],
    ['v1.35.0-eks-1a2b3c4', ['create pods/exec'], /may not create pods\/exec/],
    ['v1.36.1+k3s1', ['create pods/exec'], /may not create pods\/exec/],
    ['v1.34.9', ['get pods/exec'], /may not get pods\/exec/],
    ['v2.0.0', ['create pods/exec'], /may not create pods\/exec/],
    [undefined, ['create pods/exec'], undefined],
    [undefined, ['get pods/exec'], /may not get pods\/exec/],
  ] as const
  for (const [gitVersion, denied, message] of rows) {
    const members = pair()
    for (const member of members) {
      member.version = () =>
        gitVersion === undefined ? Promise.reject(new Error('not allowed')) : Promise.resolve({ gitVersion })
      for (const right of denied) member.denied.add(right)
    }
    const init = session()
    const run = verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
    if (message === undefined) await t.resolves(run, String(gitVersion))
    else await t.rejects(run, { name: 'UserError', message }, String(gitVersion))
  }
})

t.test('what this run does not do takes no right', async (t) => {
  const members = pair()
  for (const member of members) {
    member.unknown.add('AccessPolicy')
    for (const right of ['patch nodes', 'delete pods', 'list accesspolicies']) member.denied.add(right)
  }
  const init = session()
  await verifyClusters(members, { seconds: 1 }, sessionNames(init), init)
  await nothingIsLeft(t, members, 'without these rights')
})

/**
 * Two gateways that are active at once, which is the default. One is drained, both are restarted, and the machine of
 * one is lost, while two other clusters call twenty times a second. None of this has to wait for a Lease to expire.
 */
import { execFileSync } from 'node:child_process'
import type { Test } from 'tap'
import {
  CONDITION_DRAINED,
  CONDITION_GATEWAYS_REDUNDANT,
  findCondition,
  isConditionTrue,
} from '../../../model/conditions.ts'
import { LABEL_DRAIN } from '../../../model/lanes/gateway-node.ts'
import type { Cluster, Gateway, Node } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import type { Site } from '../support/callers.ts'
import { type GatewayWorld, gateways, lossOf, restartGateways, upLanes } from '../support/gateway-world.ts'
import { BEFORE_LONG_MS } from '../support/diagnosed.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { CALLS_PER_SECOND, type RapidReport } from '../support/rapid-calls.ts'
import { sealane, trySealane } from '../support/sealane-command.ts'

const GATEWAYS = ['c2n1', 'c2n2']
/** The API server is on the first node and must stay available. */
const LOST = 'c2n2'
/** A Lease expires after 15 s. bench/failover.ts measures how long the stories really take. */
const NO_LEASE_MS = 10_000

/** Begins with one active gateway and one standby; after another join both are active. */
export async function activeStories(t: Test, world: GatewayWorld): Promise<void> {
  await sealane(['join', '--kubeconfig', world.c2.kubeconfig, '--gateways', '2', '--yes', '--timeout', '5m'])
  await t.test('both serve', (t) => bothServe(t, world))
  await t.test('a firewall of somebody else on one is named', (t) => diagnosed(t, world))
  await t.test('a DNS server that pods do not reach is named, and so is the broker', (t) => cutFromPods(t, world))
  await t.test('one is drained, and given back; each twice', (t) => drained(t, world))
  await t.test('both are restarted, one after the other', async (t) => {
    await restartGateways(world.c2, GATEWAYS)
    await untilBoth(world.c2)
    noLeaseLapsed(t, await lossOf(t, world, 'both restarted'))
  })
  await t.test('the machine of one is lost, and comes back', (t) => lost(t, world))
}

async function untilBoth(site: Site): Promise<void> {
  const links = async (): Promise<number[]> => Promise.all(GATEWAYS.map((node) => upLanes(site, node)))
  await eventually(async () => (await links()).every((up) => up === 2), {
    deadlineMs: 90_000,
    say: `both are up to both: ${String(await links())}`,
  })
}

async function bothServe(t: Test, world: GatewayWorld): Promise<void> {
  const { c2, c3 } = world
  await untilBoth(c2)
  t.equal(await gateways(c2), GATEWAYS.join(' '))
  const labelled = await c2.api.list<Node & KubeObject>('/api/v1/nodes?labelSelector=sealane.io%2Fgateway%3Dtrue')
  t.strictSame(labelled.map(({ metadata }) => metadata.name).sort(), GATEWAYS, 'nobody named a lane')
  const redundant = async ({ api }: Site, of: string): Promise<boolean> => {
    const cluster = await api.get<Cluster & KubeObject>(`/apis/sealane.io/v1alpha1/clusters/${of}`)
    return isConditionTrue(cluster.status?.conditions, CONDITION_GATEWAYS_REDUNDANT)
  }
  await eventually(() => redundant(c2, 'c3'), { deadlineMs: 30_000, say: 'c2 says that a gateway may go' })
  t.notOk(await redundant(c3, 'c2'), 'c3, which has one, does not')
  let seen = await status(c2)
  await eventually(async () => (seen = await status(c2)).code === 0, { deadlineMs: 60_000 }).catch(() => undefined)
  t.match(seen, { code: 0, broker: 'connected', problems: [] }, 'status says that all is well')
  t.comment(`sealane status took ${Math.round(seen.ms)} ms`)
  await lossOf(t, world, 'at first')
}

/** The problems that `sealane status` or `diagnose` reports, each as `reason subject`. */
async function status({ kubeconfig }: Site, command: 'status' | 'diagnose' = 'status'): Promise<StatusSeen> {
  const { code, stdout, ms } = await trySealane([command, '--kubeconfig', kubeconfig, '-o', 'json'])
  const { broker, problems } = JSON.parse(stdout) as {
    /** Only status has this field. */
    readonly broker?: { readonly state: string }
    readonly problems: readonly { readonly reason: string; readonly subject: { readonly name: string }; seen: string }[]
  }
  const lines = problems.map(({ reason, subject, seen }) => `${reason} ${subject.name}: ${seen}`)
  return { code, broker: broker?.state, problems: lines, ms }
}

interface StatusSeen {
  readonly code: number
  readonly broker: string | undefined
  readonly problems: readonly string[]
  readonly ms: number
}

/** A command in the pod of each node inspects its kernel, because no object shows what a firewall drops. */
async function diagnosed(t: Test, { c2, nodes }: GatewayWorld): Promise<void> {
  let seen: StatusSeen | undefined
  const isWell = async (): Promise<boolean> => {
    seen = await status(c2, 'diagnose')
    return seen.code === 0 && seen.problems.length === 0
  }
  await eventually(isWell, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500 }).catch(() => undefined)
  t.match(seen, { code: 0, problems: [] }, 'nothing is found')
  const node = nodes.find(({ name }) => name === LOST)
  const nft = (...words: string[]): void => {
    execFileSync('ip', ['netns', 'exec', node?.netns ?? '', 'nft', words.join(' ')])
  }
  nft('add table inet foreign { chain in { type filter hook input priority 0; udp dport 4500-4599 drop; }; }')
  const isFirst = async (): Promise<boolean> => {
    seen = await status(c2, 'diagnose')
    return seen.problems[0]?.startsWith(`FirewallDrops ${LOST}: `) ?? false
  }
  await eventually(isFirst, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500 }).catch(() => undefined)
  t.match(seen?.problems[0], new RegExp(`^FirewallDrops ${LOST}: .*foreign`), 'first')
  t.comment(`sealane diagnose took ${Math.round(seen?.ms ?? 0)} ms: ${seen?.problems.join('; ') ?? ''}`)
  nft('delete table inet foreign')
  await untilBoth(c2)
  await eventually(isWell, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500, say: 'nothing is wrong any more' })
}

/**
 * Cuts pods off, and from the broker only new connections: the agent keeps its present one, so that only a probe from
 * the pod network notices it.
 */
async function cutFromPods(t: Test, { c2, nodes }: GatewayWorld): Promise<void> {
  const { spec } = await c2.api.get<DnsService>('/api/v1/namespaces/kube-system/services/kube-dns')
  const names = `chain names { type filter hook prerouting priority -200; ip daddr ${spec.clusterIP} udp dport 53 drop; }`
  const broker = 'chain broker { type filter hook forward priority 0; tcp dport 30000-32767 ct state new drop; }'
  const onEach = (words: string): void => {
    for (const { netns } of nodes) execFileSync('ip', ['netns', 'exec', netns, 'nft', words])
  }
  onEach(`add table inet foreign { ${names}; ${broker}; }`)
  let seen = await status(c2, 'diagnose')
  const server = `DnsServerSilent ${spec.clusterIP}:53: `
  const areNamed = async (): Promise<boolean> => {
    seen = await status(c2, 'diagnose')
    return (
      seen.problems[0]?.startsWith(server) === true && seen.problems.some((line) => line.startsWith('BrokerSilent -'))
    )
  }
  await eventually(areNamed, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500 }).catch(() => undefined)
  t.ok(seen.problems[0]?.startsWith(server), `first: ${seen.problems.join('; ')}`)
  t.ok(
    seen.problems.some((line) => line.startsWith('BrokerSilent -')),
    'the broker too',
  )
  t.comment(`sealane diagnose took ${Math.round(seen.ms)} ms`)
  onEach('delete table inet foreign')
  const isWell = async (): Promise<boolean> => (await status(c2, 'diagnose')).code === 0
  await eventually(isWell, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500, say: 'nothing is wrong any more' })
}

interface DnsService extends KubeObject {
  readonly spec: { readonly clusterIP: string }
}

async function drained(t: Test, world: GatewayWorld): Promise<void> {
  const { c2 } = world
  const command = async (what: 'drain' | 'undrain', ...flags: string[]): Promise<string> =>
    (await sealane(['gateway', what, LOST, '--kubeconfig', c2.kubeconfig, ...flags])).stdout
  for (const time of ['first', 'second']) {
    t.match(await command('drain', '--timeout', '120s'), `${LOST} carries no traffic`, `drain, ${time} time`)
  }
  t.equal(await upLanes(c2, LOST), 2, 'its links stay')
  const node = await c2.api.get<Node & KubeObject>(`/api/v1/nodes/${LOST}`)
  t.equal(node.metadata.labels?.[LABEL_DRAIN], 'true')
  noLeaseLapsed(t, await lossOf(t, world, 'drained by the command'))
  t.match(await command('undrain'), 'can carry traffic again')
  t.match(await command('undrain'), 'is not drained', 'a second time')
  const drains = async (): Promise<boolean> => {
    const gateway = await c2.api.get<Gateway & KubeObject>(`/apis/sealane.io/v1alpha1/gateways/${LOST}`)
    return findCondition(gateway.status?.conditions, CONDITION_DRAINED) !== undefined
  }
  await eventually(async () => !(await drains()), { deadlineMs: 30_000, say: 'it is drained no more' })
  noLeaseLapsed(t, await lossOf(t, world, 'given back'))
}

async function lost(t: Test, world: GatewayWorld): Promise<void> {
  const { underlay, c2, nodes } = world
  const node = nodes.find(({ name }) => name === LOST)
  underlay.plug(LOST, false)
  await node?.kubelet.kill()
  for (const say of ['one of two lost', 'without it']) noLeaseLapsed(t, await lossOf(t, world, say))
  const isNamed = ({ problems }: StatusSeen): boolean =>
    problems.some((line) => line.startsWith(`GatewaySilent ${LOST}: `) || line.startsWith(`NodeNotReady ${LOST}: `))
  let seen = await status(c2)
  const settles = async (): Promise<boolean> => {
    seen = await status(c2)
    t.comment(`${seen.code} ${seen.problems.join('; ')}`)
    // One of the cluster's DNS servers may have been on that node, and then DNS is down too until Kubernetes stops
    // sending it queries.
    return isNamed(seen) && seen.code < 2
  }
  await eventually(settles, { deadlineMs: 90_000, intervalMs: 2000 }).catch(() => undefined)
  t.ok(isNamed(seen), `status names it: ${seen.problems.join('; ')}`)
  t.equal(seen.code, 1, 'degraded: the other one carries')
  underlay.plug(LOST, true)
  node?.kubelet.start()
  await node?.ready()
  await untilBoth(c2)
  noLeaseLapsed(t, await lossOf(t, world, 'back'))
}

function noLeaseLapsed(t: Test, reports: readonly RapidReport[]): void {
  for (const { calls, longestGapMs } of reports) {
    t.ok(
      calls > CALLS_PER_SECOND / 2 && longestGapMs < NO_LEASE_MS,
      `${calls} calls, the longest gap was ${longestGapMs} ms`,
    )
  }
}

/**
 * What other clusters reach on a node, and what its pods reach in other clusters, with packets: the worker and the
 * gateway node of test/routeagent/support/datapath.ts, where the gateway node calls in the name of pods of paris and oslo.
 */
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { ANNOTATION_CALLERS } from '../../model/access/callers.ts'
import type { KubeObject } from '../../model/objects.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  call,
  here,
  ip,
  serving,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { podObject } from '../routeagent/support/pod-object.ts'
import { cluster, endpoint, gateway, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { holdConnection } from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import type { DeniedSample } from '../../routeagent/access/denied-samples.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { accessPolicy, clusterAccessPolicy } from '../support/objects/access-objects.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject } from '../support/objects/service-objects.ts'

const WEB = '10.42.1.5'
const OTHER = '10.42.1.6'
const NODE = '10.42.1.1'
/** How long a call waits for an answer that should not come. Answers take milliseconds here. */
const SILENCE_MS = 1000
const PARIS = '244.1.0.5'
const OSLO = '244.3.0.5'
/** A service of paris for namespace shop, whose backend is at port 8081. */
const FAR_IP = '245.0.0.7'

const WEB_EXPORT = exportObject({ name: 'web' })
const OBJECTS: readonly KubeObject[] = [
  membershipObject({ exposure: 'exports' }),
  node('gw', '192.168.7.1', '10.42.0.0/24'),
  node('worker', '192.168.7.11', '10.42.1.0/24'),
  cluster('milano', 1, '244.0.0.0/16'),
  cluster('paris', 2, '244.1.0.0/16'),
  cluster('oslo', 3, '244.3.0.0/16'),
  endpoint('milano', 'gw'),
  gateway('gw', { paris: 'up', oslo: 'up' }, 1400),
  WEB_EXPORT,
  ownSlice('web', [WEB], [{ name: 'http', protocol: 'TCP', port: 80 }]),
  exportObject({ name: 'log' }),
  ownSlice('log', [WEB], [{ name: 'log', protocol: 'UDP', port: 514 }]),
  accessPolicy('shop/log', { targetRefs: [{ name: 'log' }], from: [{ clusters: ['paris'] }] }),
  podObject('shop/web', WEB),
  podObject('bank/other', OTHER),
  serviceImport('far', FAR_IP),
  limitedSlice('far', 'paris', [PARIS], ['shop']),
]

type Call = readonly [what: string, caller: string, kind: 'tcp' | 'udp' | 'echo', address: string, port: number]

const ANSWERED: readonly Call[] = [
  ['an exported port', PARIS, 'tcp', WEB, 80],
  ['from another cluster', OSLO, 'tcp', WEB, 80],
  ['a service for paris', PARIS, 'udp', WEB, 514],
  ['echo to an exported pod', OSLO, 'echo', WEB, 0],
]
const REFUSED: readonly Call[] = [
  ['another port', PARIS, 'tcp', WEB, 8080],
  ['the same port with UDP', PARIS, 'udp', WEB, 80],
  ['a service for paris', OSLO, 'udp', WEB, 514],
  ['another pod', PARIS, 'tcp', OTHER, 80],
  ['another pod, UDP', PARIS, 'udp', OTHER, 514],
  ['echo to another pod', PARIS, 'echo', OTHER, 0],
  ['the node', PARIS, 'tcp', NODE, 80],
  ['echo to the node', PARIS, 'echo', NODE, 0],
]

inPrivateNetns(t, import.meta.url, () => {
  t.test('what other clusters reach', { timeout: 120_000 }, (t) =>
    withNetns((web) => withNetns((other) => withNetns((far) => story(t, { web, other, far })))),
  )
})

interface Spaces {
  readonly web: Netns
  readonly other: Netns
  readonly far: Netns
}

async function story(t: Test, spaces: Spaces): Promise<void> {
  const { web, other, far } = spaces
  await buildBridge([web, other])
  await buildGatewayNode(far)
  await far.exec('ip', ['address', 'add', `${OSLO}/32`, 'dev', 'lo'])
  const serve = (ns: Netns, ...where: string[]): Promise<void> =>
    serving(ns.spawn(process.execPath, [TALKER, 'serve', ...where]))
  await serve(web, `${WEB}:80`, `${WEB}:514`, `${WEB}:8080`)
  await serve(other, `${OTHER}:80`, `${OTHER}:514`)
  await serve(far, `${PARIS}:8080`, `${PARIS}:8081`)
  const answers = callerOf(far)
  const check = async (say: string): Promise<void> => {
    t.strictSame(
      await answers(ANSWERED),
      ANSWERED.map(() => true),
      `${say}: answered`,
    )
    t.strictSame(
      await answers(REFUSED, SILENCE_MS),
      REFUSED.map(() => false),
      `${say}: not answered`,
    )
  }

  const first = startRouteAgent(t, OBJECTS)
  await ready(first)
  await check('exports')
  t.same(await call(web, 'tcp', { address: PARIS, port: 8080, count: 2 }), [`${PARIS} ${WEB}`, `${PARIS} ${WEB}`])
  t.same(await call(other, 'udp', { address: PARIS, port: 8080, count: 1 }), [`${PARIS} ${OTHER}`], 'pods still call')
  await checkCalls(t, spaces, 'exports')
  for (const reason of ['not-exported', 'not-offered', 'node', 'namespace'])
    t.ok((await dropped(reason)) > 0, `${reason} is counted`)
  await sampled(t, first, spaces)
  await openConnection(t, first, far)

  const heard: string[] = []
  const stranger = far.spawn(process.execPath, [TALKER, 'stream', OTHER, '514'])
  stranger.stdout?.on('data', (data: Buffer) => heard.push(String(data)))
  await first.stop()
  await check('without a process')
  await checkCalls(t, spaces, 'without a process')
  const second = startRouteAgent(t, OBJECTS)
  await ready(second)
  await check('after a restart')
  await checkCalls(t, spaces, 'after a restart')
  await changedCalls(t, second, spaces)
  await unknownNode(t, second, spaces)
  t.same(heard, [], 'a stranger that calls all the time gets no answer')

  second.api.put(membershipObject({ exposure: 'pods' }))
  await eventually(() => heard.length > 0, { say: 'all pods are exposed' })
  stranger.kill()
  const all = [...ANSWERED, ...REFUSED.filter(([, , kind, address]) => address !== NODE || kind === 'echo')]
  t.strictSame(
    await answers(all),
    all.map(() => true),
    'all pods, and echo of the node',
  )
  second.api.put(membershipObject({ exposure: 'nothing' }))
  await eventually(async () => (await elements()) === '', { say: 'nothing is exposed' })
  t.strictSame(
    await answers(ANSWERED, SILENCE_MS),
    ANSWERED.map(() => false),
    'nothing',
  )
}

/** A flood of refused packets, of which the kernel hands on a few. */
async function sampled(t: Test, site: Site, { far, other }: Spaces): Promise<void> {
  const samples = (): readonly DeniedSample[] => site.status.detailOf('denied')?.() as readonly DeniedSample[]
  const before = samples().length
  const flood = far.spawn(process.execPath, [TALKER, 'flood', OTHER, '514', '2000'])
  await once(flood, 'exit')
  const isFlood = ({ to, port }: DeniedSample): boolean => to.address === OTHER && port === 514
  await eventually(() => samples().slice(before).some(isFlood), { say: 'the flood is sampled' })
  const last = samples().findLast(isFlood) as DeniedSample
  const { reason, from, to, protocol, port } = last
  t.same(
    { reason, from, to, protocol, port },
    {
      ...{ reason: 'access-not-exported', protocol: 'udp', port: 514 },
      ...{ from: { address: OSLO, cluster: 'oslo' }, to: { address: OTHER } },
    },
  )
  t.ok(samples().length - before < 40, `${samples().length - before} samples of 2000 packets`)
  const isCall = ({ reason: why, from: caller, to: called }: DeniedSample): boolean =>
    why === 'access-namespace' && caller.address === OTHER && called.cluster === 'paris'
  await eventually(async () => !(await reaches(other, ...FAR[0])) && samples().some(isCall), {
    say: 'a call of a pod is sampled',
  })
}

type FarCall = readonly [kind: 'tcp' | 'udp', address: string, port: number]

/** The first two are for namespace shop. */
const FAR: readonly [FarCall, ...FarCall[]] = [
  ['tcp', FAR_IP, 80],
  ['tcp', PARIS, 8081],
  // It is not limited.
  ['tcp', PARIS, 8080],
]

/** Whether the pod, or this node, is answered by paris. */
async function reaches(from: Netns | undefined, ...[kind, address, port]: FarCall): Promise<boolean> {
  return (await call(from, kind, { address, port, count: 1, waitMs: SILENCE_MS }))[0]?.startsWith(PARIS) === true
}

async function checkCalls(t: Test, { web, other }: Spaces, say: string): Promise<void> {
  const of = (from: Netns | undefined): Promise<boolean[]> => Promise.all(FAR.map((to) => reaches(from, ...to)))
  const found = await Promise.all([of(web), of(other), of(undefined)])
  t.strictSame(
    found,
    [
      [true, true, true],
      [false, false, true],
      [false, false, true],
    ],
    `${say}: pods, and the node`,
  )
}

/** Namespaces and egress rules that change while the process runs. */
async function changedCalls(t: Test, { api }: Site, { web, other }: Spaces): Promise<void> {
  const [vip] = FAR
  const eventuallyReaches = (from: Netns, is: boolean, say: string): Promise<unknown> =>
    eventually(async () => (await reaches(from, ...vip)) === is, { say })
  api.put(podObject('bank/web', WEB))
  await eventuallyReaches(web, false, 'an address of two namespaces is refused')
  api.drop('Pod', 'web', 'bank')
  api.drop('Pod', 'other', 'bank')
  api.put(podObject('shop/other', OTHER))
  await eventuallyReaches(other, true, 'the address of another pod')
  await eventuallyReaches(web, true, 'as before')
  const policy = clusterAccessPolicy('allow')
  api.put({ ...policy, spec: { ...policy.spec, egress: [{ namespaces: ['bank'] }] } })
  await eventuallyReaches(web, false, 'no egress')
  t.notOk(await reaches(web, 'udp', PARIS, 8080), 'to nothing of the cluster')
  t.ok((await dropped('egress')) > 0, 'egress is counted')
  api.put({ ...policy, spec: { ...policy.spec, egress: [{ clusters: ['paris'] }] } })
  await eventuallyReaches(web, true, 'egress for all')
  api.put(policy)
  await eventuallyReaches(other, true, 'nothing is stated any more')
}

/** This node becomes a gateway, and passes on packets for a pod of which it does not know the node. */
async function unknownNode(t: Test, { api }: Site, { far, other }: Spaces): Promise<void> {
  const pod = '10.42.9.5'
  await other.exec('ip', ['address', 'add', `${pod}/32`, 'dev', 'lo'])
  await ip(`route add ${pod} via ${OTHER} dev cni0`)
  await far.exec('ip', `route replace ${pod} via 192.168.7.11 dev sealane-vx onlink src ${PARIS}`.split(' '))
  await serving(other.spawn(process.execPath, [TALKER, 'serve', `${pod}:514`]))
  const isAnswered = async (): Promise<boolean> => {
    return (await call(far, 'udp', { address: pod, port: 514, count: 1, waitMs: SILENCE_MS }))[0] === `${pod} ${PARIS}`
  }
  const [lane, otherLane] = [endpoint('milano', 'worker', 1), endpoint('milano', 'gw')]
  api.put(lane)
  await eventually(isAnswered, { say: 'UDP, beside another gateway' })
  api.drop('Endpoint', otherLane.metadata.name)
  const chains = (): Promise<string> => here('nft', 'list', 'table', 'ip', 'sealane_node')
  await eventually(async () => (await chains()).includes('chain leaves-nodes'), { say: 'the only gateway' })
  t.notOk(await isAnswered(), 'UDP to a pod of a node that is not known')
  api.put(exportObject({ name: 'distant' }))
  api.put(ownSlice('distant', [pod], [{ name: 'log', protocol: 'UDP', port: 514 }]))
  await eventually(isAnswered, { say: 'what is exported is answered' })
  api.drop('ServiceExport', 'distant', 'shop')
  api.put(otherLane)
  api.drop('Endpoint', lane.metadata.name)
  await eventually(async () => !(await chains()).includes('chain leaves-nodes'), { say: 'no gateway any more' })
}

function limitedSlice(name: string, from: string, addresses: readonly string[], names: readonly string[]): KubeObject {
  const made = slice(name, from, addresses, [{ name: 'http', protocol: 'TCP', port: 8081 }])
  const annotations = { [ANNOTATION_CALLERS]: JSON.stringify({ names, selectors: [] }) }
  return { ...made, metadata: { ...made.metadata, annotations } }
}

async function ready(site: Site): Promise<void> {
  await eventually(() => site.status.notReady().length === 0, { say: 'ready' })
  await eventually(async () => (await site.runs('routes')) > 0, { say: 'routes are applied' })
}

/** The ports in the kernel that others may call. */
async function elements(): Promise<string> {
  const listing = await here('nft', 'list', 'map', 'ip', 'sealane_node', 'access')
  return /elements = \{([^}]*)\}/.exec(listing)?.[1] ?? ''
}

/**
 * An offer that is taken back ends connections, and one that is made again continues them. If the policy keeps open ones,
 * they go on, and no other begins.
 */
async function openConnection(t: Test, site: Site, far: Netns): Promise<void> {
  await far.exec('ip', route(PARIS))
  const held = holdConnection(far, WEB)
  t.equal(await held.ask(), `${WEB} ${PARIS}`, 'a connection')
  site.api.drop('ServiceExport', 'web', 'shop')
  await eventually(async () => !(await elements()).includes('. tcp . 80'), { say: 'no longer exported' })
  let isAnswered = false
  const answer = held.ask().then((text) => {
    isAnswered = true
    return text
  })
  const before = await dropped()
  await eventually(async () => (await dropped()) > before, { say: 'its packets are dropped' })
  t.notOk(isAnswered, 'an open connection gets no answer')
  site.api.put(WEB_EXPORT)
  t.equal(await answer, `${WEB} ${PARIS}`, 'and goes on when the service is exported again')

  const policy = clusterAccessPolicy('allow')
  const keeps = async (is: boolean): Promise<void> => {
    site.api.put({ ...policy, spec: { ...policy.spec, keepOpenConnections: is } })
    const rule = 'meta l4proto tcp ct state established goto admitted'
    const listing = (): Promise<string> => here('nft', 'list', 'chain', 'ip', 'sealane_node', 'admit')
    await eventually(async () => (await listing()).includes(rule) === is, { say: `kept: ${is}` })
  }
  await keeps(true)
  site.api.drop('ServiceExport', 'web', 'shop')
  await eventually(async () => !(await elements()).includes('. tcp . 80'), { say: 'not exported once more' })
  t.equal(await held.ask(), `${WEB} ${PARIS}`, 'an open connection is kept')
  const second = (): Promise<string[]> => call(far, 'tcp', { address: WEB, port: 80, count: 1, waitMs: SILENCE_MS })
  t.notOk((await second())[0]?.startsWith(WEB), 'no other begins')
  await keeps(false)
  const ended = held.ask()
  const had = await dropped()
  await eventually(async () => (await dropped()) > had, { say: 'it ends when the policy no longer keeps it' })
  site.api.put(WEB_EXPORT)
  t.equal(await ended, `${WEB} ${PARIS}`)
  held.end()
}

async function dropped(reason = 'not-exported'): Promise<number> {
  const listing = await here('nft', 'list', 'counter', 'ip', 'sealane_node', `dropped-access-${reason}`)
  return Number(/packets (\d+)/.exec(listing)?.[1])
}

function route(source: string): string[] {
  return `route replace 10.42.1.0/24 via 192.168.7.11 dev sealane-vx onlink src ${source}`.split(' ')
}

/** Makes the calls, those of one cluster together, and returns whether each was answered. */
function callerOf(far: Netns): (calls: readonly Call[], waitMs?: number) => Promise<boolean[]> {
  const one = async ([, caller, kind, address, port]: Call, waitMs: number): Promise<boolean> => {
    if (kind === 'echo') {
      const ping = ['ping', '-c', '1', '-W', '1', '-I', caller, address]
      return (await far.exec('sh', ['-c', `${ping.join(' ')} || true`])).includes(' 1 received')
    }
    const [answer = ''] = await call(far, kind, { address, port, count: 1, waitMs })
    return answer === `${address} ${caller}`
  }
  return async (calls, waitMs = 3000) => {
    const found = new Map<Call, boolean>()
    for (const source of [PARIS, OSLO]) {
      await far.exec('ip', route(source))
      const some = calls.filter(([, caller]) => caller === source)
      for (const [i, ok] of (await Promise.all(some.map((made) => one(made, waitMs)))).entries())
        found.set(some[i] as Call, ok)
    }
    return calls.map((made) => found.get(made) ?? false)
  }
}

/**
 * Probes of `sealane explain --probe` with packets: the worker and the gateway node of
 * test/routeagent/support/datapath.ts, where the gateway node stands in for pods of paris. The node calls itself; the
 * gateway node follows the packets by the hidden command, as in a pod of a route agent.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseProbeReport, probeMachine } from '../../cli/status/path/probe-machine.ts'
import { type PathExplanation, PATH_DOCUMENT } from '../../explain/path/document.ts'
import type { ProbeDocument, ProbeReport, ProbeTask } from '../../explain/path/packet-probe.ts'
import { planProbe } from '../../explain/path/plan-probe-end.ts'
import { ANNOTATION_CALLERS } from '../../model/access/callers.ts'
import type { KubeObject } from '../../model/objects.ts'
import { runCli, startCli } from '../cli/run-cli.ts'
import { siteWith } from '../cli/status/site-with.ts'
import { memberObjects, pathObjects } from '../explain/path/two-members.ts'
import {
  TALKER,
  buildBridge,
  buildGatewayNode,
  here,
  ip,
  serving,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { cluster, endpoint, gateway, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { SELF } from '../support/objects/member-facts.ts'

const SEALANE = join(import.meta.dirname, '../../bin/sealane')
const PARIS = '244.1.0.5'
/** A service of paris that is offered to pods of namespace shop alone. */
const FAR_IP = '245.0.0.7'
const OFFERED = slice('far', 'paris', [PARIS], [{ name: 'http', protocol: 'TCP', port: 8081 }])
const LIMITED: KubeObject = {
  ...OFFERED,
  metadata: {
    ...OFFERED.metadata,
    annotations: { [ANNOTATION_CALLERS]: JSON.stringify({ names: ['shop'], selectors: [] }) },
  },
}
const OBJECTS: readonly KubeObject[] = [
  membershipObject({ exposure: 'exports' }),
  node('gw', '192.168.7.1', '10.42.0.0/24'),
  node('worker', '192.168.7.11', '10.42.1.0/24'),
  cluster('milano', 1, '244.0.0.0/16'),
  cluster('paris', 2, '244.1.0.0/16'),
  endpoint('milano', 'gw'),
  gateway('gw', { paris: 'up' }, 1400),
  serviceImport('far', FAR_IP),
  LIMITED,
]

inPrivateNetns(t, import.meta.url, () => {
  t.test('the command, on a site, and --watch', { timeout: 90_000 }, command)
  t.test('where packets end', { timeout: 150_000 }, (t) => withNetns((pod) => withNetns((far) => story(t, pod, far))))
})
// Each probe waits for its answer, and --watch for its interval.
t.setTimeout(180_000)

/** This namespace is the node w0 of a site, which by its objects is healthy. */
async function command(t: Test): Promise<void> {
  const {
    Pod: _Pod,
    Deployment: _Deployment,
    DaemonSet: _DaemonSet,
    NetworkPolicy: _Policy,
    ...objects
  } = memberObjects(SELF)
  const own = await siteWith(t, undefined, { ...objects, EndpointSlice: [...(pathObjects(SELF).EndpointSlice ?? [])] })
  const words = ['explain', 'w0', 'db.shop:5432', '--site', own.file, '--ask', '127.0.0.1:9', '--probe', '-o', 'json']
  const elsewhere = await runCli(words)
  t.equal(elsewhere.code, 3, elsewhere.stderr)
  t.match(PATH_DOCUMENT.parse(JSON.parse(elsewhere.stdout)).probe, {
    ...{ result: 'failed', outcome: 'UNDETERMINED' },
    places: [{ notAsked: /none of the addresses of node "w0"/ }],
  })
  for (const i of [1, 2, 3, 4, 5]) await ip(`address add 192.0.2.${i}/32 dev lo`)
  const watched = startCli([...words, '--watch', '--interval', '15s'])
  const seen = (): readonly PathExplanation[] =>
    watched
      .answers()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => PATH_DOCUMENT.parse(JSON.parse(line)))
  await eventually(() => seen().length === 1, { say: 'the first explanation' })
  t.match(seen()[0], {
    outcome: 'UNREACHABLE',
    failing: { station: 'node' },
    probe: {
      ...{ result: 'unreachable', end: { node: 'w0', isExact: true }, destination: '245.0.0.9', port: 5432 },
      places: [{ node: 'w0' }, { cluster: 'paris', notAsked: /was not named/ }],
    },
  })
  await ip('address add 245.0.0.9/32 dev lo')
  const server = createServer((socket) => socket.on('error', () => undefined)).listen(5432, '245.0.0.9')
  t.teardown(() => void server.close())
  await eventually(() => seen().at(-1)?.probe?.result === 'answered', { say: 'the change', deadlineMs: 40_000 })
  watched.stop()
  const { code, stderr } = await watched.result
  t.equal(code, 0, 'the exit code of the last explanation')
  t.equal(stderr, '')
  t.strictSame(await tables(), [], 'no table stays')
  await ip('address del 245.0.0.9/32 dev lo')
}

async function story(t: Test, pod: Netns, far: Netns): Promise<void> {
  await buildBridge([pod])
  await buildGatewayNode(far)
  await serving(far.spawn(process.execPath, [TALKER, 'serve', `${PARIS}:8080`]))
  const site = startRouteAgent(t, OBJECTS)
  await settled(site, new RegExp(`slot-0: ${FAR_IP}`))
  const before = await tables()

  const passed = await probe(far, 'tcp', PARIS, 8080)
  t.match(passed, { result: 'answered', outcome: 'REACHABLE' }, JSON.stringify(passed))
  t.match(passed.places, [{ notAsked: undefined }, { notAsked: undefined }], 'both sides follow')
  t.ok(
    passed.places.every(({ requests, answers }) => requests > 0 && answers > 0),
    JSON.stringify(passed.places),
  )
  t.ok(passed.places[0]?.passed.includes('to sealane-vx'), JSON.stringify(passed.places[0]))
  t.match(await probe(far, 'udp', PARIS, 8080), { result: 'answered', outcome: 'REACHABLE' })
  t.match(await probe(far, 'tcp', PARIS, 8082), { result: 'refused', outcome: 'UNREACHABLE' }, 'nothing listens')

  await far.exec('nft', ['add table ip t; add chain ip t in { type filter hook input priority 0; }'])
  await far.exec('nft', ['add rule ip t in tcp dport 8080 drop'])
  const there = await probe(far, 'tcp', PARIS, 8080)
  t.match(there, {
    ...{ result: 'silent', outcome: 'UNREACHABLE' },
    end: { node: 'gw', family: 'ip', table: 't', chain: 'in', rule: /tcp dport 8080 drop/, isExact: true },
  })
  await far.exec('nft', ['delete table ip t'])

  // The device of the overlay at the far end: this node sends, and nothing arrives.
  await far.exec('ip', ['link', 'set', 'sealane-vx', 'down'])
  const lost = await probe(far, 'tcp', PARIS, 8080)
  t.match(lost, {
    ...{ result: 'silent', outcome: 'UNREACHABLE' },
    end: {
      station: 'gateway',
      node: 'worker',
      message: /leave worker by sealane-vx; gw does not see them/,
      isExact: true,
    },
  })
  t.ok(
    lost.places[0]?.counters.some(({ name }) => name === 'device sealane-vx sent'),
    JSON.stringify(lost.places[0]?.counters),
  )
  await far.exec('ip', ['link', 'set', 'sealane-vx', 'up'])

  await refusedByAccess(t, far)
  t.strictSame(await tables(), before, 'no table stays')
  t.strictSame((await far.exec('nft', ['list', 'tables'])).trim(), '')
  await killed(t, far)
}

async function refusedByAccess(t: Test, far: Netns): Promise<void> {
  const found = await probe(far, 'tcp', FAR_IP, 80)
  t.match(found, {
    outcome: 'UNREACHABLE',
    end: { station: 'access', node: 'worker', table: 'sealane_node', reason: 'access-namespace', isExact: true },
  })
  t.ok(
    found.places[0]?.counters.some(({ name }) => name === 'ip sealane_node dropped-access-namespace'),
    JSON.stringify(found.places[0]?.counters),
  )
}

let sourcePort = 21_000

/** Sends from this node, and follows here and on the gateway node. */
async function probe(far: Netns, protocol: 'tcp' | 'udp', to: string, port: number): Promise<ProbeDocument> {
  sourcePort += 1
  const call = { protocol, sourcePort, sources: [], destinations: [to, PARIS], ports: [port, 8081] }
  const task: ProbeTask = { family: 4, seconds: 20, ...call }
  const follower = follow(far, task)
  await follower.ready
  const own = await probeMachine({ task: { ...task, send: { to, port } } }, AbortSignal.timeout(90_000))
  follower.child.stdin.end('end\n')
  const place = { cluster: 'milano', isFar: false }
  const packets = {
    ...({ family: 4, protocol, to, port, isPod: false, sources: [], destinations: [to], ports: [port] } as const),
    ...{ isCut: false, clusterOf: new Map([[PARIS, 'paris']]) },
  }
  return planProbe({
    ...{ packets, port, sourcePort, by: 'this machine', isStandIn: false, nowMs: Date.now() },
    places: [
      { ...place, node: 'worker', isCaller: true, source: 'this machine', report: own },
      { ...place, node: 'gw', isCaller: false, source: 'gw', report: await follower.report },
    ],
  })
}

interface Follower {
  readonly child: ChildProcessWithoutNullStreams
  readonly ready: Promise<void>
  readonly report: Promise<ProbeReport>
}

function follow(ns: Netns, task: ProbeTask): Follower {
  const words = ['netns', 'exec', ns.name, SEALANE, 'probe', 'packets', JSON.stringify(task)]
  const child = spawn('ip', words, { stdio: 'pipe' })
  let [said, complaint] = ['', '']
  const ready = new Promise<void>((resolve) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text
      if (said.includes('\n')) resolve()
    })
    child.once('close', () => resolve())
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => (complaint += text))
  const report = once(child, 'close').then(([code]) => {
    if (code !== 0) throw new Error(`it ended with ${String(code)}: ${complaint}`)
    return parseProbeReport(said.slice(said.indexOf('\n') + 1))
  })
  report.catch(() => undefined)
  return { child, ready, report }
}

async function tables(): Promise<readonly string[]> {
  return (await here('nft', 'list', 'tables')).split('\n').filter((line) => line !== '')
}

/** A command that is killed leaves nothing that traces after its deadline. */
async function killed(t: Test, far: Netns): Promise<void> {
  const call = { protocol: 'tcp', sourcePort: 21_999, sources: [], destinations: [PARIS], ports: [80] } as const
  const follower = follow(far, { family: 4, seconds: 2, ...call } as unknown as ProbeTask)
  await follower.ready
  const ruleset = (): Promise<string> => far.exec('nft', ['list', 'ruleset'])
  t.match(await ruleset(), /table ip sealane_trace_/)
  // `ip netns exec` and the launcher have become the program by exec.
  follower.child.kill('SIGKILL')
  await eventually(async () => !/elements/.test(await ruleset()), { say: 'nothing is traced' })
  t.comment((await ruleset()).includes('sealane_trace') ? 'an empty table stays' : 'the table went with its owner')
}

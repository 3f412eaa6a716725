/**
 * Calls from pods of another cluster to the status pages of our own pods, which a lane reaches like every other pod.
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { METRICS_EVERYWHERE, STATUS_METRICS } from '../../install/workloads/pod.ts'
import { STATUS_PORTS } from '../../install/values/names.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { DUAL_STACK_MILANO, DUAL_STACK_PARIS, type Running } from '../gateway/support/two-gateways.ts'
import { serving } from '../routeagent/support/datapath.ts'
import { compiledProgram } from '../support/compiled-program.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import type { Netns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { attackLane } from './support/lane-up.ts'
import { NO_FACTS, rawJoin } from './support/raw-join.ts'
import { HOST_SERVICES, knockAt } from './support/raw-packets.ts'

t.setTimeout(120_000 * SLOWNESS)

const { dns: PAGE, broker: BROKER_PAGE } = STATUS_PORTS
/** A pod of milano's gateway node, as paris and as milano call it, and a pod of another node. */
const PODS = [
  { theirs: '244.0.0.5', own: '10.42.0.5', other: '244.0.1.5' },
  { theirs: '[fd42:1:0:0::5]', own: '[fd42:1:0:0::5]', other: 'fd42:1:0:1::5' },
] as const
/** More connections than the page has places. */
const HELD = 100

/** Prints the status and the text of the answer, or the code of the error. */
const ASKER = `
  const tell = (text) => { console.log(text); process.exit() }
  setTimeout(() => tell('timeout'), 20_000)
  require('node:http').get(process.argv[1], { agent: false }, (answer) => {
    let text = ''
    answer.on('data', (part) => (text += part)).on('end', () => tell(answer.statusCode + ' ' + text))
  }).on('error', (e) => tell(e.code))`

const HOLDER = `
  const [host, port, count] = process.argv.slice(1)
  let answers = 0
  const sockets = Array.from({ length: Number(count) }, () => require('node:net').connect(Number(port), host)
    .on('connect', function () { this.write('GET /healthz HTTP/1.1\\r\\n') })
    .on('data', () => (answers += 1)).on('error', () => undefined))
  const tell = () => {
    console.log(JSON.stringify({ answers, open: sockets.filter((socket) => !socket.closed).length }))
    process.exit()
  }
  for (const socket of sockets) socket.on('close', () => sockets.every(({ closed }) => closed) && tell())
  setTimeout(tell, 20_000)`

await attackLane(t, [DUAL_STACK_MILANO, DUAL_STACK_PARIS], async (milano, paris) => {
  for (const { theirs } of PODS) {
    const host = theirs.replace(/[[\]]/g, '')
    await eventually(async () => (await pings(paris.site.pod, host, '-W', '1')).includes('1 received'), {
      say: `${host} answers echo`,
    })
  }
  const { pod, far } = milano.site
  // These ports belong to services of the user on the node.
  await serving(far.spawn(process.execPath, ['-e', HOST_SERVICES, String(PAGE), String(BROKER_PAGE)]))
  await attack('status-page-from-lane', async (t) => {
    const clusters = JSON.stringify([milano.site.init.cluster, paris.site.init.cluster])
    start(pod, [`[::]:${PAGE}`, 'member', clusters])
    await shutToLanes(t, milano, paris, PAGE)
  })
  await attack('broker-page-from-lane', async (t) => {
    const broker = await brokerHere(t)
    await rawJoin(broker, 'milano')
    await rawJoin(broker, 'paris')
    await rawJoin(broker, 'six', { ...NO_FACTS, podCidrs: ['10.66.0.0/16', 'fd42:2::/48'] })
    await broker.stop()
    start(pod, [`[::]:${BROKER_PAGE}`, 'broker', broker.state])
    await shutToLanes(t, milano, paris, BROKER_PAGE)
  })
})

function start(pod: Netns, args: readonly string[]): void {
  const program = compiledProgram(join(import.meta.dirname, 'support/status-pages.ts'))
  pod.spawn(process.execPath, [program, ...args], { env: { ...process.env, [STATUS_METRICS]: METRICS_EVERYWHERE } })
}

async function shutToLanes(t: Test, milano: Running, paris: Running, port: number): Promise<void> {
  const { gateway, pod, far } = milano.site
  const page = (host: string, path: string): string => `http://${host}:${port}${path}`
  await eventually(async () => (await ask(pod, page('127.0.0.1', '/readyz'))).startsWith('200'), {
    say: 'the page is ready',
  })
  for (const { theirs, own, other } of PODS) {
    const crowd = hold(paris.site.pod, theirs, port)
    const probes = await Promise.all(Array.from({ length: 4 }, () => ask(gateway, page(own, '/healthz'))))
    t.same([...new Set(probes)], ['200 ok'], `${own}: the node's probes are answered meanwhile`)
    t.match(await ask(far, page(own, '/metrics')), /^200 .*sealane_/s, `${own}: a pod of our own reads metrics`)
    t.same(await crowd, { answers: 0, open: 0 }, `${theirs}: ${HELD} connections from a lane hold nothing`)
    for (const path of ['/healthz', '/status', '/metrics'])
      t.match(await ask(paris.site.pod, page(theirs, path)), /^(ECONNRESET|EPIPE)$/, `${theirs}: no ${path}`)
    t.equal(await knockAt(paris.site.pod, 'tcp', other, port), 'connected', `${other}: a service of a user is reached`)
  }
  const counted = await ask(pod, page('127.0.0.1', '/metrics'))
  const turnedAway = Number(/^sealane_status_turned_away_total\{.*\} (\d+)$/m.exec(counted)?.[1])
  t.ok(turnedAway >= 2 * HELD, `${turnedAway} are counted`)
}

/** The answer as ASKER prints it. */
async function ask(ns: Pick<Netns, 'exec'>, url: string): Promise<string> {
  return (await ns.exec(process.execPath, ['-e', ASKER, url])).trim()
}

/**
 * Opens connections that send half a request each, and returns what became of them. A page closes such a connection
 * after 5 s.
 */
async function hold(ns: Pick<Netns, 'exec'>, host: string, port: number): Promise<unknown> {
  const text = await ns.exec(process.execPath, ['-e', HOLDER, host.replace(/[[\]]/g, ''), String(port), String(HELD)])
  return JSON.parse(text)
}

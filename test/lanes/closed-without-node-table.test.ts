/**
 * Without failClosed: a pod of another member calls 500 times a second what nobody has exported, while the gateway node
 * and a worker lose their tables, and the route agents of both end and start without theirs. Nothing answers, and an
 * exported port goes on. The sites are those of test/routeagent/support/calico-sites.ts.
 */
import t from 'tap'
import { withCalicoSites } from '../routeagent/support/calico-sites.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject } from '../support/objects/service-objects.ts'
import { Calls, serve } from '../netns/support/calls.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

const EXPORTED = '244.0.6.7 8080'
/**
 * As `iptables -t mangle -A PREROUTING -j CONNMARK --restore-mark`. The kernel puts a chain before others of the same
 * priority, so this one comes after ours once our table has been restored.
 */
const RESTORES_MARKS =
  'table ip theirs { chain marks { type filter hook prerouting priority -150; meta mark set ct mark; }; }'
/** Pods of the gateway node and of the worker. */
const CLOSED = ['244.0.5.7 9000', '244.0.6.7 9000']

const INIT = {
  exposure: 'exports',
  failClosed: false,
  objects: [
    exportObject({ name: 'web' }),
    ownSlice('web', ['10.42.6.7'], [{ name: 'http', protocol: 'TCP', port: 8080 }]),
  ],
} as const

t.test('a node without its table', { skip, timeout: 150_000 * SLOWNESS }, (t) =>
  withCalicoSites(
    t,
    async (sites) => {
      const { gw, worker, gwPod, workerPod, parisPod } = sites
      let { gwProcess, workerProcess } = sites
      await Promise.all([gwPod, workerPod].map((pod) => serve(t, pod, [9000])))
      const calls = await Calls.begin(t, { from: parisPod, own: ['10.42.8.7'], targets: [EXPORTED, ...CLOSED] })
      const some = async (say: string): Promise<void> => {
        const sent = calls.sent
        await eventually(() => calls.sent > sent + 300, { say })
      }
      const goesOn = async (what: string): Promise<void> => {
        const had = calls.answered(EXPORTED)
        const say = `${what}: the exported port answers: ${calls.text()} ${gwProcess.errors} ${workerProcess.errors}`
        await eventually(() => calls.answered(EXPORTED) > had + 30, { say, deadlineMs: 30_000 })
        await some(what)
      }
      await goesOn('at first')
      const remove = 'delete table ip sealane_node'
      const steps: Readonly<Record<string, () => Promise<unknown>>> = {
        'another program restores the marks of connections': () =>
          Promise.all([gw, worker].map((node) => node.exec('nft', [RESTORES_MARKS]))),
        'the table of the gateway node deleted': () => gw.exec('nft', [remove]),
        // Until one of the tables is back, nothing translates to addresses of pods.
        'nft flush ruleset on the gateway node': () => gw.exec('nft', ['flush ruleset']),
        'the table of the worker deleted': () => worker.exec('nft', [remove]),
        'nft flush ruleset on the worker': () => worker.exec('nft', ['flush ruleset']),
        'the processes of the gateway node end, its table is deleted, and they start': async () => {
          await gwProcess.stop()
          await gw.exec('nft', [remove])
          await some('no table')
          await goesOn('by the overlay, without a route agent')
          gwProcess = sites.startGw()
        },
        'the route agent of the worker ends, and starts without a table and an overlay': async () => {
          await workerProcess.stop()
          await worker.exec('ip', ['link', 'del', 'sealane-vx'])
          await worker.exec('nft', [remove])
          await some('no overlay')
          workerProcess = sites.startWorker()
        },
      }
      for (const [what, act] of Object.entries(steps)) {
        const before = CLOSED.map((one) => calls.answered(one))
        await act()
        await goesOn(what)
        const answered = CLOSED.map((one, i) => calls.answered(one) - (before[i] ?? 0))
        t.strictSame(answered, [0, 0], what)
      }
      for (const process of [gwProcess, workerProcess]) process.put(membershipObject({ exposure: 'pods' }))
      await eventually(() => CLOSED.every((one) => calls.answered(one) > 0), { say: `all pods: ${calls.text()}` })
      await calls.stop()
    },
    INIT,
  ),
)

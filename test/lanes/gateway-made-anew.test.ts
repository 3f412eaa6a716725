/**
 * A lane after one of its gateways was rebuilt: all its processes are killed, WireGuard too, and the key is kept. The
 * end that lost the session calls; if it cannot, the other end does. bench:links measures how soon a lane comes up.
 */
import t from 'tap'
import { GatewayProcess, introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import {
  MILANO,
  PARIS,
  type Running,
  TOKYO,
  idOf,
  msUntilUp,
  vanish,
  withTwo,
} from '../gateway/support/two-gateways.ts'
import { callsAnew, countCalls, sessions } from '../gateway/support/wireguard-calls.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.setTimeout(300_000)

for (const gone of ['milano', 'paris'] as const) {
  t.test(`${gone} is made anew, with its key`, { skip, timeout: 120_000 }, async (t) => {
    await withTwo(t, [MILANO, PARIS], async (milano, paris, internet) => {
      introduce(milano, paris)
      await msUntilUp(milano, paris)
      const [lost, other] = gone === 'milano' ? [milano, paris] : [paris, milano]
      const before = await sessions(other)
      await goes(lost, other)
      t.equal(await sessions(other), before, 'the other end keeps its session')
      const calls = await countCalls(internet, lost)
      await comesBack(lost, other)
      await msUntilUp(milano, paris)
      t.ok((await calls()) > 0, 'who has lost the session calls')
      t.match(await pings(milano.site.pod, '244.1.0.5'), '1 received')
    })
  })
}

t.test('milano is made anew, with its key, and cannot call the other', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, TOKYO], async (milano, tokyo, internet) => {
    introduce(milano, tokyo)
    await msUntilUp(milano, tokyo)
    const calls = await countCalls(internet, tokyo)
    await goes(milano, tokyo)
    const { sent, inOnePeer } = await callsAnew(tokyo, calls)
    t.ok(sent < inOnePeer, 'tokyo calls at once and not when WireGuard would repeat a call')
    await comesBack(milano, tokyo)
    await msUntilUp(milano, tokyo)
    t.match(await pings(milano.site.pod, '244.2.0.5'), '1 received')
  })
})

async function goes(lost: Running, other: Running): Promise<void> {
  await vanish(lost)
  await eventually(() => other.process.stateOf(idOf(lost)) === 'down', {
    deadlineMs: 20_000,
    say: 'the loss is noticed',
  })
}

async function comesBack(lost: Running, other: Running): Promise<void> {
  lost.process = new GatewayProcess(lost.site)
  introduce(lost, other)
  for (const object of other.process.objects.values()) {
    if (object.kind === 'Endpoint' && object.spec.cluster === idOf(other)) lost.process.put(object)
  }
  await eventually(() => lost.process.status !== undefined, { deadlineMs: 20_000, say: 'started again' })
}

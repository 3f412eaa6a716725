/** How soon a lane is back after one of its gateways was made anew: everything killed, WireGuard too, the key kept. */
import t from 'tap'
import { GatewayProcess, introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, TOKYO, idOf, msUntilUp, vanish, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { undisturbed } from '../support/undisturbed.ts'

const skip = netnsMissing() ?? false

for (const [far, gone] of [
  [PARIS, 'milano'],
  [PARIS, 'paris'],
  [TOKYO, 'milano'],
] as const) {
  const say = far === TOKYO ? ', and cannot call the other' : ''
  t.test(`${gone} is made anew, with its key${say}`, { skip, timeout: 120_000 }, async (t) => {
    await withTwo(t, [MILANO, far], async (left, right) => {
      introduce(left, right)
      await msUntilUp(left, right)
      const [lost, other] = idOf(left) === gone ? [left, right] : [right, left]
      const makeAnew = async (): Promise<{ downAfterMs: number; upAfterMs: number }> => {
        await vanish(lost)
        const died = performance.now()
        await eventually(() => other.process.stateOf(gone) === 'down', { say: 'the loss is noticed' })
        const downAfterMs = Math.round(performance.now() - died)
        lost.process = new GatewayProcess(lost.site)
        introduce(lost, other)
        for (const object of other.process.objects.values()) {
          if (object.kind === 'Endpoint' && object.spec.cluster === idOf(other)) lost.process.put(object)
        }
        await eventually(() => lost.process.status !== undefined, { say: 'started again' })
        return { downAfterMs, upAfterMs: await msUntilUp(left, right) }
      }
      const soon = await undisturbed(
        t,
        (timed) => timed(makeAnew),
        ({ downAfterMs, upAfterMs }) => downAfterMs < 1000 && upAfterMs <= 2500,
      )
      t.ok(soon.downAfterMs < 1000, `down after ${soon.downAfterMs} ms`)
      t.ok(soon.upAfterMs <= 2500, `up ${soon.upAfterMs} ms after it was there again`)
      t.match(await pings(left.site.pod, far === TOKYO ? '244.2.0.5' : '244.1.0.5'), '1 received')
    })
  })
}

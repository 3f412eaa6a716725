/**
 * An uplink that goes down and up again: the lane goes down with it, and recovers with the previous session, or by the
 * calls of the end that cannot be called. bench:links measures how soon.
 */
import t, { type Test } from 'tap'
import { GATEWAY_DEFAULTS } from '../../gateway/world/config.ts'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, TOKYO, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { callsAnew, countCalls, sessions } from '../gateway/support/wireguard-calls.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.setTimeout(300_000)

t.test('milano loses its link to paris', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    const keptBy = async (): Promise<string[]> => Promise.all([milano, paris].map(sessions))
    await t.test('for a moment', async (t) => {
      const before = await keptBy()
      await cut(milano, paris)
      t.same(await keptBy(), before, 'both ends keep their session')
      await mend(t, milano, paris, '244.1.0.5')
    })
    await t.test('for so long that paris tries all addresses that milano has told', async (t) => {
      const before = await keptBy()
      await cut(milano, paris)
      const said = (): string => paris.process.status?.connections[0]?.message ?? ''
      const downForSeconds = (): number => Number(/ since (\d+) s/.exec(said())?.[1] ?? NaN)
      await eventually(() => downForSeconds() * 1000 > GATEWAY_DEFAULTS.rotateMs, {
        deadlineMs: 20_000,
        say: 'the next turn',
      })
      t.match(said(), 'candidate 1 of')
      t.same(await keptBy(), before, 'both ends keep their session')
      await mend(t, milano, paris, '244.1.0.5')
    })
  })
})

t.test(
  'milano loses its link to tokyo, which it cannot call, for so long that tokyo calls again and again',
  { skip, timeout: 120_000 },
  async (t) => {
    await withTwo(t, [MILANO, TOKYO], async (milano, tokyo, internet) => {
      introduce(milano, tokyo)
      await msUntilUp(milano, tokyo)
      const calls = await countCalls(internet, tokyo)
      const before = await sessions(milano)
      await cut(milano, tokyo)
      const { sent, inOnePeer } = await callsAnew(tokyo, calls)
      t.ok(sent < inOnePeer, 'tokyo calls at once and not when WireGuard would repeat a call')
      t.equal(await sessions(milano), before, 'milano keeps its session')
      await mend(t, milano, tokyo, '244.2.0.5')
    })
  },
)

/** Cuts the uplink, and waits until the far side reports it, since that side cannot see the uplink. */
async function cut(milano: Running, far: Running): Promise<void> {
  await milano.site.gateway.exec('ip', ['link', 'set', 'uplink', 'down'])
  await eventually(() => far.process.stateOf('milano') === 'down', {
    deadlineMs: 20_000,
    say: `${idOf(far)} says that the lane is down`,
  })
}

async function mend(t: Test, milano: Running, far: Running, pod: string): Promise<void> {
  await eventually(() => milano.process.stateOf(idOf(far)) === 'down', {
    deadlineMs: 20_000,
    say: 'milano says so too',
  })
  await milano.site.gateway.exec('ip', ['link', 'set', 'uplink', 'up'])
  await milano.site.gateway.exec('ip', ['route', 'replace', 'default', 'via', MILANO.router])
  await msUntilUp(milano, far)
  t.match(await pings(milano.site.pod, pod), '1 received')
}

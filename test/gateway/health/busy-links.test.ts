/** Links that carried more than our own probes. */
import t from 'tap'
import { BUSY_MS, BusyLinks } from '../../../gateway/health/link-traffic.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const KEY = '0/paris'

t.test('probes alone are no traffic, one small packet a second is', async (t) => {
  const clock = new FakeClock()
  const links = new BusyLinks(clock)
  let [bytes, probes] = [10_000, 50]
  let padded = 0
  const look = async (ms: number, moreBytes: number, moreProbes: number, morePadded = 0): Promise<boolean> => {
    await clock.advance(ms)
    bytes += moreBytes
    probes += moreProbes
    padded += morePadded
    const count = { probes, paddedOctets: padded }
    links.look([{ key: KEY, bytes, least: count, most: count }])
    return links.isBusy(KEY)
  }
  t.equal(await look(0, 0, 0), false, 'nothing is known yet')
  t.equal(await look(2000, 8 * 96, 8), false, 'probes at the slow pace')
  t.equal(await look(2000, 40 * 96, 40), false, 'and at the quick one')
  t.equal(await look(2000, 8 * 96 + 148 + 92 + 32, 8), false, 'a handshake')
  t.equal(await look(2000, 8 * 96 + 4 * 128, 8), true, 'a ping each second')
  t.equal(await look(BUSY_MS - 1, 8 * 96, 8), true)
  t.equal(await look(1, 8 * 96, 8), false, 'long ago')
  t.equal(await look(2000, 20 * 96 + 10 * 1472, 20, 10 * 1440), false, 'padded ones')
  t.equal(await look(2000, 20 * 96 + 12 * 1472, 20, 10 * 1440), false, 'and some that have not been read yet')
  t.equal(await look(2000, 20 * 96 + 10 * 1472 + 10_000, 20, 10 * 1440), true, 'traffic beside them')
  t.equal(await look(BUSY_MS, 8 * 96, 8), false)
  t.equal(await look(2000, 10_000_000, 8), true)
  bytes = 0
  await clock.advance(BUSY_MS)
  t.equal(await look(0, 5000, 8), false, 'one that is made anew counts from 0')
  links.look([])
  t.equal(links.isBusy(KEY), false, 'forgotten')
})

t.test('probes between the two looks at an interval count for it', async (t) => {
  const clock = new FakeClock()
  const links = new BusyLinks(clock)
  const at = (probes: number, paddedOctets: number) => ({ probes, paddedOctets })
  links.look([{ key: KEY, bytes: 0, least: at(0, 0), most: at(20, 14_400) }])
  await clock.advance(2000)
  links.look([{ key: KEY, bytes: 60 * 96 + 30_000, least: at(40, 28_800), most: at(60, 43_200) }])
  t.equal(links.isBusy(KEY), false, 'all of them may have been sent since the device was asked first')
})

/** The guest has a stock kernel with WireGuard, and every suite that touches the kernel runs in it. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { prepareGuest, runInGuest } from './in-guest.ts'

t.setTimeout(0)

t.test('the guest has a stock kernel with WireGuard', async (t) => {
  await prepareGuest()
  const looked = await runInGuest('sh', '-c', 'uname -r; ip link add probe type wireguard && wg show interfaces')
  t.equal(looked.status, 0, looked.output)
  t.match(looked.output, /-amd64\s+probe/)
})

t.test('each suite of the kernel runs in a guest', async (t) => {
  const here = readdirSync(import.meta.dirname)
  const suites = readdirSync(join(import.meta.dirname, '../netns')).filter((name) => /^kernel-.*\.test\.ts$/.test(name))
  t.ok(suites.length > 0, 'there are some')
  for (const name of suites) t.ok(here.includes(name), `test/guest/${name}`)
})

/**
 * Hosts whose new devices do not forward (CIS and STIG: net.ipv4.conf.default.forwarding=0, net.ipv4.ip_forward=1):
 * devices of Sealane inherit that, and traffic still passes; a later change by another program is repaired.
 */
import t, { type Test } from 'tap'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { HARDENED } from '../support/hardened-host.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.setTimeout(300_000)

t.test('gateways on hardened hosts', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    for (const { site } of [milano, paris]) for (const [name, value] of HARDENED) await set(site.gateway, name, value)
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    const answered = async (): Promise<boolean> => / 1 received/.test(await pings(milano.site.pod, '244.1.0.5'))
    await eventually(answered, { deadlineMs: 20_000, say: 'a pod calls a pod of the other cluster' })
    t.equal(await settingsOf(milano, 'sealane0'), 'forwarding 1, rp_filter 2, accept_local 0')
    await drifts(t, milano)
  })
})

async function set(at: Running['site']['gateway'], name: string, value: string): Promise<void> {
  await at.exec('sysctl', ['-q', '-w', `${name}=${value}`])
}

async function settingsOf({ site }: Running, device: string): Promise<string> {
  const keys = ['forwarding', 'rp_filter', 'accept_local']
  const values = await Promise.all(
    keys.map((key) => site.gateway.exec('sysctl', ['-n', `net/ipv4/conf/${device}/${key}`])),
  )
  return keys.map((key, i) => `${key} ${(values[i] ?? '').trim()}`).join(', ')
}

/** Each round checks the settings, and a device that another program changes causes a round at once. */
async function drifts(t: Test, milano: Running): Promise<void> {
  await set(milano.site.gateway, 'net/ipv4/conf/sealane0/forwarding', '0')
  await milano.site.gateway.exec('ip', ['link', 'set', 'sealane0', 'mtu', '1300'])
  await eventually(async () => (await settingsOf(milano, 'sealane0')) === 'forwarding 1, rp_filter 2, accept_local 0', {
    deadlineMs: 40_000,
    say: 'forwarding is on again',
  })
  t.match(await pings(milano.site.pod, '244.1.0.5'), '1 received')
}

import { execFileSync } from 'node:child_process'
import t from 'tap'
import { EthtoolChecksumOffload } from '../../kernel/tuning/checksum-offload.ts'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { sysctlCompliance } from '../compliance/sysctl.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  sysctlCompliance(t, () => new ProcSysctl())

  t.test('a value that the kernel refuses', async (t) => {
    await t.rejects(new ProcSysctl().write('net.ipv4.conf.lo.rp_filter', 'loose'), { code: 'EINVAL' })
  })

  t.test('a device whose name has a dot', async (t) => {
    execFileSync('ip', ['link', 'add', 'sl-br.5', 'type', 'bridge'])
    const sysctl = new ProcSysctl()
    await sysctl.write('net/ipv4/conf/sl-br.5/rp_filter', '2')
    t.equal(await sysctl.read('net/ipv4/conf/sl-br.5/rp_filter'), '2')
  })

  t.test('checksum offload of a VXLAN device', async (t) => {
    const state = (): string | undefined => {
      const text = execFileSync('ethtool', ['-k', 'sl-vx'], { encoding: 'utf8' })
      return /tx-checksum-ip-generic: (.*)/.exec(text)?.[1]
    }
    execFileSync('ip', 'link add sl-vx type vxlan id 7 dstport 4811 local 127.0.0.1 nolearning'.split(' '))
    const offload = new EthtoolChecksumOffload({ clock: new FakeClock() })
    const { signal } = new AbortController()
    t.equal(state(), 'on', 'what the kernel gives it')
    t.equal(await offload.ensure('sl-vx', 'off', signal), 'ethtool -K sl-vx tx-checksum-ip-generic off')
    t.equal(state(), 'off')
    t.equal(await offload.ensure('sl-vx', 'on', signal), 'ethtool -K sl-vx tx-checksum-ip-generic on')
    t.equal(await offload.ensure('sl-vx', 'on', signal), undefined)
    t.equal(state(), 'on')
    await t.rejects(offload.ensure('sl-none', 'off', signal), { code: 'UNKNOWN', message: /ethtool -k sl-none/ })
    t.strictSame((await offload.machine('sl-vx')).drivers, [], 'a virtual device has no card')
  })
})

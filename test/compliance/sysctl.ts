/**
 * The suite for every Sysctl driver. `make` returns one with both forwarding settings and the settings of the device
 * `lo`.
 */
import type { Test } from 'tap'
import type { Sysctl } from '../../kernel/tuning/sysctl.ts'
import { IPV6_FORWARDING } from '../../model/kernel-ids.ts'

export function sysctlCompliance(t: Test, make: () => Sysctl): void {
  t.test('reads, writes and reads again', async (t) => {
    const sysctl = make()
    for (const name of [
      'net.ipv4.ip_forward',
      'net/ipv4/ip_forward',
      'net.ipv4.conf.lo.rp_filter',
      'net/ipv4/conf/lo/rp_filter',
      'net.ipv6.conf.all.forwarding',
      IPV6_FORWARDING,
    ]) {
      for (const value of ['0', '1']) {
        await sysctl.write(name, value)
        t.equal(await sysctl.read(name), value, `${name} ${value}`)
      }
    }
    await sysctl.write('net.ipv4.conf.lo.rp_filter', '2')
    t.equal(await sysctl.read('net/ipv4/conf/lo/rp_filter'), '2', 'both spellings are one setting')
  })

  t.test('what is not there', async (t) => {
    const sysctl = make()
    t.equal(await sysctl.read('net/ipv4/conf/eth0.5/rp_filter'), undefined)
    t.equal(await sysctl.read('net.ipv4.ip_forward.deeper'), undefined)
    await t.rejects(sysctl.write('net/ipv4/conf/eth0.5/rp_filter', '2'), { code: 'ENOENT' })
  })

  t.test('names and values that are none', async (t) => {
    const sysctl = make()
    for (const name of ['', 'net', 'net/../../etc/passwd', 'net//ipv4', '/etc/passwd', 'net.ipv4.ip_forward\n']) {
      await t.rejects(sysctl.read(name), { code: 'EINVAL' }, JSON.stringify(name))
    }
    await t.rejects(sysctl.write('net.ipv4.ip_forward', '1\n0'), { code: 'EINVAL' })
    await t.rejects(sysctl.write('net.ipv4.ip_forward', ''), { code: 'EINVAL' })
  })
}

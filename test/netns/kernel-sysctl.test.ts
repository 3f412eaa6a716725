import { execFileSync } from 'node:child_process'
import t from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
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
})

/** Which process switched IP forwarding on, and which one switches it off. */
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import { ensureForwarding, restoreForwarding } from '../../../kernel/tuning/ip-forwarding.ts'
import { IP_FORWARDING, IPV6_FORWARDING } from '../../../model/kernel-ids.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const BOOT = 'kernel/random/boot_id'

function node(t: Parameters<typeof temporaryFolder>[0], forwarding: '0' | '1') {
  const folder = join(temporaryFolder(t), 'state', 'nodes', 'gw')
  const sysctl = new FakeSysctl({ [IP_FORWARDING]: forwarding, [IPV6_FORWARDING]: '0', [BOOT]: 'first\n' })
  return { folder, sysctl, one: join(folder, 'one'), two: join(folder, 'two') }
}

t.test('switched on by us: switched off by us', async (t) => {
  const { sysctl, folder, one } = node(t, '0')
  t.equal(await ensureForwarding(sysctl, one, IP_FORWARDING), true)
  t.equal(await sysctl.read(IP_FORWARDING), '1')
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(await ensureForwarding(sysctl, one, IP_FORWARDING), false, 'once')
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), true)
  t.equal(await sysctl.read(IP_FORWARDING), '0')
  t.notOk(existsSync(one))
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), false, 'once')
})

t.test('IPv6 has a switch of its own', async (t) => {
  const { sysctl, one } = node(t, '1')
  t.equal(await ensureForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await ensureForwarding(sysctl, one, IPV6_FORWARDING), true)
  t.equal(await sysctl.read(IPV6_FORWARDING), '1')
  t.same([existsSync(one), existsSync(`${one}-ipv6`)], [false, true], 'a marker for each')
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await restoreForwarding(sysctl, one, IPV6_FORWARDING), true)
  t.notOk(existsSync(`${one}-ipv6`))
  t.same([await sysctl.read(IP_FORWARDING), await sysctl.read(IPV6_FORWARDING)], ['1', '0'])
})

t.test('what could not be switched on is not switched off', async (t) => {
  const { sysctl, one, two } = node(t, '0')
  const write = sysctl.write.bind(sysctl)
  sysctl.write = () => Promise.reject(new KernelError('EPERM', 'sysctl', '/proc/sys is read-only here'))
  await t.rejects(ensureForwarding(sysctl, one, IP_FORWARDING), { code: 'EPERM' })
  sysctl.write = write
  await sysctl.write(IP_FORWARDING, '1')
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await sysctl.read(IP_FORWARDING), '1', 'somebody else did it')
  await t.rejects(ensureForwarding(sysctl, two, 'net/ipv6/conf/none/forwarding'), { code: 'ENOENT' })
  t.equal(await restoreForwarding(sysctl, two, 'net/ipv6/conf/none/forwarding'), false, 'leaving does not fail')
})

t.test('on before us: it stays on', async (t) => {
  const { sysctl, one } = node(t, '1')
  t.equal(await ensureForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await sysctl.read(IP_FORWARDING), '1')
})

t.test('two parts, in every order: the last one out leaves it as it was', async (t) => {
  for (const [first, last] of [
    ['one', 'two'],
    ['two', 'one'],
  ] as const) {
    const { sysctl, folder } = node(t, '0')
    await ensureForwarding(sysctl, join(folder, 'one'), IP_FORWARDING)
    await ensureForwarding(sysctl, join(folder, 'two'), IP_FORWARDING)
    await restoreForwarding(sysctl, join(folder, first), IP_FORWARDING)
    await ensureForwarding(sysctl, join(folder, last), IP_FORWARDING)
    t.equal(await sysctl.read(IP_FORWARDING), '1', `${last} still needs it`)
    await restoreForwarding(sysctl, join(folder, last), IP_FORWARDING)
    t.equal(await sysctl.read(IP_FORWARDING), '0', `${last} was the last`)
  }
})

t.test('after a restart of the machine the setting is not ours to change', async (t) => {
  const { sysctl, one } = node(t, '0')
  await ensureForwarding(sysctl, one, IP_FORWARDING)
  await sysctl.write(BOOT, 'second')
  t.equal(await restoreForwarding(sysctl, one, IP_FORWARDING), false)
  t.equal(await sysctl.read(IP_FORWARDING), '1')
  t.notOk(existsSync(one), 'the marker of another boot goes all the same')
})

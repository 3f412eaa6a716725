/** What is read from a machine, also if tools fail or print only half of their output. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { addressesHere, lookAtHost } from '../../../kernel/look/look-at-host.ts'
import type { CommandResult, RunCommand } from '../../../kernel/run-command.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** cni0 has no port, so it has no carrier, but it still has its address. */
const DEVICES = [
  { ifname: 'lo', addr_info: [{ local: '127.0.0.1' }, { local: '::1' }] },
  { ifname: 'cni0', flags: ['NO-CARRIER', 'UP'], operstate: 'DOWN', addr_info: [{ local: '10.42.1.1' }] },
  { ifname: 'uplink' },
]
const RULES = { nftables: [{ table: { family: 'ip', name: 'sealane_gateway' } }] }

const ok = (value: unknown): CommandResult => ({ code: 0, stdout: JSON.stringify(value), stderr: '' })
const failed: CommandResult = { code: 2, stdout: '[', stderr: 'Error: ipv4: FIB table does not exist.\n' }

/** The answers of each tool in turn; the last one is repeated. */
function tools(answers: Readonly<Record<string, readonly CommandResult[]>>): RunCommand & { readonly asked: string[] } {
  const asked: string[] = []
  const run: RunCommand = (tool, args) => {
    const text = [tool, ...args].join(' ')
    const key = Object.keys(answers).find((begin) => text.startsWith(begin)) ?? ''
    const all = answers[key] ?? [failed]
    asked.push(key)
    return Promise.resolve(all[Math.min(asked.filter((one) => one === key).length, all.length) - 1] ?? failed)
  }
  return Object.assign(run, { asked })
}

function look(t: Test, run: RunCommand): ReturnType<typeof lookAtHost> {
  const proc = temporaryFolder(t)
  mkdirSync(join(proc, 'sys/net/ipv4/conf/sealane0'), { recursive: true })
  mkdirSync(join(proc, 'sys/kernel'))
  writeFileSync(join(proc, 'sys/kernel/osrelease'), '6.18.3-arch1-1\n')
  writeFileSync(join(proc, 'cpuinfo'), 'processor\t: 0\nflags\t\t: fpu avx avx2 sse\nbugs\t\t:\n')
  writeFileSync(join(proc, 'sys/net/ipv4/ip_forward'), '1\n')
  writeFileSync(join(proc, 'sys/net/ipv4/conf/sealane0/rp_filter'), '2\n')
  return lookAtHost({ folders: [], timeoutMs: 1000, run, proc }, new AbortController().signal)
}

t.test('a backend behind a bridge port without hairpin mode, where netfilter sees bridges', async (t) => {
  const rows: readonly (readonly [netfilter: string, mode: string, backend: string, found: number])[] = [
    ['1', '0', '10.42.1.5', 1],
    ['0', '0', '10.42.1.5', 0],
    ['1', '1', '10.42.1.5', 0],
    ['1', '0', '10.42.1.6', 0],
  ]
  for (const [netfilter, mode, backend, count] of rows) {
    const [proc, sys] = [temporaryFolder(t), temporaryFolder(t)]
    for (const folder of ['sys/net/bridge', 'net']) mkdirSync(join(proc, folder), { recursive: true })
    for (const folder of ['cni0/brif/veth1', 'veth1/brport']) mkdirSync(join(sys, folder), { recursive: true })
    writeFileSync(join(proc, 'sys/net/bridge/bridge-nf-call-iptables'), `${netfilter}\n`)
    writeFileSync(join(proc, 'net/arp'), '10.42.1.5 0x1 0x2 0a:00:00:00:00:05 * cni0\n')
    writeFileSync(join(sys, 'cni0/brforward'), Buffer.from('0a000000000501000000000000000000', 'hex'))
    writeFileSync(join(sys, 'veth1/brport/port_no'), '0x1\n')
    writeFileSync(join(sys, 'veth1/brport/hairpin_mode'), `${mode}\n`)
    writeFileSync(join(sys, 'veth1/ifindex'), '7\n')
    const set = { nftables: [{ metainfo: {} }, { set: { name: 'hairpin', elem: [{ concat: [backend, backend] }] } }] }
    const run = tools({ 'nft --json list set ip sealane_node hairpin': [ok(set)], 'nft --json --terse': [ok(RULES)] })
    const init = { folders: [], timeoutMs: 1000, run, proc, netDevices: sys }
    const { look: found } = await lookAtHost(init, new AbortController().signal)
    const want = { address: '10.42.1.5', command: 'bridge link set dev veth1 hairpin on' }
    t.same(found.cutOffFromSelf, Array(count).fill(want), [netfilter, mode, backend].join())
  }
})

const DEVICE = 'ip -json address'
const RULESET = 'nft --json'
const ROUTES = 'ip -json -4 route show table 7311'

t.test('devices that carry nothing, tables without a route', async (t) => {
  const run = tools({ [DEVICE]: [ok(DEVICES)], [RULESET]: [ok(RULES)], [ROUTES]: [ok([{ dst: '10.52.0.0/16' }, {}])] })
  const { look: found, troubles } = await look(t, run)
  t.same(troubles, [])
  t.same(found.devices, [
    { name: 'lo', addresses: ['127.0.0.1', '::1'] },
    { name: 'cni0', addresses: ['10.42.1.1'] },
    { name: 'uplink', addresses: [] },
  ])
  t.same(found.firewall?.tables, ['ip sealane_gateway'])
  t.same(found.routes?.['7311'], ['10.52.0.0/16'])
  t.same(Object.values(found.routes ?? {}).flat(), ['10.52.0.0/16'], 'a table that is not there has none')
  t.equal(found.sysctls['net/ipv4/conf/sealane0/rp_filter'], '2')
  t.strictSame(found.kernel, { release: '6.18.3-arch1-1', avx2: true })
  const here = await addressesHere({ run, timeoutMs: 1000, signal: new AbortController().signal })
  t.same(here, ['127.0.0.1', '::1', '10.42.1.1'])
})

t.test('half of a listing is asked for again, three times', async (t) => {
  const half: CommandResult = { code: 0, stdout: '{"nftables": [', stderr: '' }
  const twice = tools({ [DEVICE]: [ok(DEVICES)], [RULESET]: [half, half, ok(RULES)] })
  t.same((await look(t, twice)).troubles, [])
  const ever = tools({ [DEVICE]: [ok(DEVICES)], [RULESET]: [half] })
  const { look: found, troubles } = await look(t, ever)
  t.same(
    troubles.map(({ what, message }) => `${what}: ${message}`),
    ['Firewall: nft --json --terse list ruleset: it prints no JSON'],
  )
  t.equal(found.firewall, undefined)
  t.equal(ever.asked.filter((key) => key === RULESET).length, 3)
})

t.test('a tool that fails is named, and the rest counts', async (t) => {
  const { look: found, troubles } = await look(t, tools({ [RULESET]: [ok(RULES)] }))
  t.same(
    troubles.map(({ what }) => what),
    ['Devices'],
  )
  t.ok(
    found.devices.some(({ name }) => name === 'lo'),
    'what the system knows is there',
  )
  t.same(found.firewall?.tables, ['ip sealane_gateway'])
})

t.test('settings of devices: ours that differ, and those of others that hand nothing on', async (t) => {
  const proc = temporaryFolder(t)
  const put = (name: string, value: string): void => {
    const file = join(proc, 'sys', name)
    mkdirSync(join(file, '..'), { recursive: true })
    writeFileSync(file, `${value}\n`)
  }
  for (const device of ['all', 'default', 'lo', 'cni0', 'veth1', 'sealane0', 'sealane-vx'])
    put(`net/ipv4/conf/${device}/forwarding`, ['cni0', 'sealane-vx'].includes(device) ? '1' : '0')
  put('net/ipv4/conf/sealane0/rp_filter', '2')
  put('net/ipv4/conf/sealane0/accept_local', '1')
  put('net/ipv6/conf/sealane0/disable_ipv6', '1')
  put('net/ipv6/conf/sealane0/accept_ra', '1')
  put('net/ipv6/conf/sealane-vx/disable_ipv6', '0')
  put('net/ipv6/conf/sealane-vx/accept_ra', '1')
  const run = tools({})
  const { look: found } = await lookAtHost({ folders: [], timeoutMs: 1000, run, proc }, new AbortController().signal)
  t.equal(found.sysctls['net/ipv4/conf/veth1/forwarding'], '0')
  t.notOk('net/ipv4/conf/cni0/forwarding' in found.sysctls)
  t.same(
    found.deviceSettings.map(({ name, value, found: is }) => `${name} ${is} not ${value}`),
    [
      'net/ipv4/conf/sealane0/forwarding 0 not 1',
      'net/ipv4/conf/sealane0/accept_local 1 not 0',
      'net/ipv6/conf/sealane-vx/accept_ra 1 not 0',
    ],
    'IPv6 where it is on',
  )
})

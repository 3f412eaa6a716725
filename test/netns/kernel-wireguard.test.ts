/**
 * WireGuard for real. The story with two devices:
 *
 *   this namespace                        sl-<random>
 *   WgCommand  slt…  246.0.0.1/32         wg by hand  slf…  246.0.0.2/32
 *        wire 192.0.2.1/24 ───── veth ───── wire 192.0.2.2/24
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseAddressPort } from '../../model/addresses/address-port.ts'
import { Rtnetlink } from '../../kernel/route/rtnetlink.ts'
import { type RunCommand, runCommand } from '../../kernel/run-command.ts'
import { parseDump } from '../../kernel/wireguard/wg-text.ts'
import { daemonsOf, readByUapi, socketPath } from '../../kernel/wireguard/wireguard-go.ts'
import { WgCommand } from '../../kernel/wireguard/wg-command.ts'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { wireguardCompliance, type WireguardUnderTest } from '../compliance/wireguard.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns, withNetns, type Netns } from '../support/netns.ts'

const make = (): WireguardUnderTest => {
  const routes = new Rtnetlink()
  return { routes, wireguard: new WgCommand({ routes }) }
}

inPrivateNetns(t, import.meta.url, () => {
  wireguardCompliance(t, make)
  t.test('keys are those of wg', (t) => {
    const { privateKey, publicKey } = generateWireguardKey()
    t.equal(execFileSync('wg', ['pubkey'], { input: privateKey, encoding: 'utf8' }).trim(), publicKey)
    t.end()
  })
  t.test('a name that another device has', async (t) => {
    const { wireguard, routes } = make()
    t.teardown(() => routes.close())
    await routes.addLink({ kind: 'bridge', name: 'sl-br', mtu: 1500 })
    const file = keyFile(t, generateWireguardKey().privateKey)
    await t.rejects(wireguard.ensureDevice('sl-br', { privateKeyFile: file, mtu: 1420 }), { code: 'EEXIST' })
    await t.rejects(wireguard.deleteDevice('sl-br'), { code: 'EEXIST' })
    t.equal(await wireguard.read('sl-br'), undefined)
    await routes.deleteLink('sl-br')
  })
  t.test('a tun device of something else', async (t) => {
    const { wireguard, routes } = make()
    t.teardown(() => routes.close())
    execFileSync('ip', ['tuntap', 'add', 'mode', 'tun', 'name', 'sl-tun'])
    const file = keyFile(t, generateWireguardKey().privateKey)
    await t.rejects(wireguard.ensureDevice('sl-tun', { privateKeyFile: file, mtu: 1420 }), { code: 'EEXIST' })
    await t.rejects(wireguard.deleteDevice('sl-tun'), { code: 'EEXIST' })
    await routes.deleteLink('sl-tun')
  })
  t.test('a wireguard-go whose socket was removed is replaced', async (t) => {
    const { wireguard, routes } = make()
    t.teardown(() => routes.close())
    if ((await wireguard.driver()) === 'kernel') {
      t.pass('the kernel has its own')
      return
    }
    const name = `slt${randomBytes(4).toString('hex')}`
    const init = { privateKeyFile: keyFile(t, generateWireguardKey().privateKey), mtu: 1420 }
    await wireguard.ensureDevice(name, init)
    const before = await daemonsOf(name)
    // While it is stopped, it cannot notice that its socket is removed.
    for (const pid of before) process.kill(pid, 'SIGSTOP')
    rmSync(`/var/run/wireguard/${name}.sock`)
    for (const pid of before) process.kill(pid, 'SIGCONT')
    await eventually(async () => (await wireguard.ensureDevice(name, init)).name === name, {
      say: 'the device is back',
    })
    t.notSame(await daemonsOf(name), before)
    await wireguard.deleteDevice(name)
    t.same(await daemonsOf(name), [])
  })
  t.test('the socket of wireguard-go and wg say the same', sameByBoth)
  t.test('a device outlives the process that made it', outlives)
  t.test('two devices: with the right key nothing is lost', (t) => twoDevices(t, 'right key'))
  t.test('two devices: with a wrong key nothing arrives', (t) => twoDevices(t, 'wrong key'))
})

async function sameByBoth(t: Test): Promise<void> {
  const { wireguard, routes } = make()
  t.teardown(() => routes.close())
  const name = `slt${randomBytes(4).toString('hex')}`
  const isKernel = (await wireguard.driver()) === 'kernel'
  const clock = new SystemClock()
  // The tool must not be used to read wireguard-go.
  const run: RunCommand = (tool, args, options) => {
    if (!isKernel && args[0] === 'show') throw new Error(`${tool} ${args.join(' ')}`)
    return runCommand(tool, args, options)
  }
  const reading = new WgCommand({ routes, run })
  const said = async (): Promise<void> => {
    const byTool = parseDump(name, execFileSync('wg', ['show', name, 'dump'], { encoding: 'utf8' }))
    t.strictSame(await readByUapi(name, socketPath(name), clock), isKernel ? undefined : byTool)
    t.strictSame(await reading.read(name), byTool)
  }
  await wireguard.ensureDevice(name, { privateKeyFile: keyFile(t, generateWireguardKey().privateKey), mtu: 1380 })
  await said()
  const peers = ['192.0.2.1:4500', '[2001:db8::7]:4501', undefined].map((endpoint, i) => ({
    publicKey: generateWireguardKey().publicKey,
    allowedIps: i === 2 ? [] : [`244.${i}.0.0/16`, `fd42:${i}::/48`],
    keepaliveSeconds: i * 15,
    ...(endpoint === undefined ? {} : { endpoint: parseAddressPort(endpoint) }),
  }))
  await wireguard.sync(name, { listenPort: 4517, mark: 7310, peers })
  await said()
  await wireguard.deleteDevice(name)
  t.equal(await readByUapi(name, socketPath(name), clock), undefined)
}

function keyFile(t: Test, privateKey: string): string {
  const file = join(t.testdir({}), 'key')
  writeFileSync(file, `${privateKey}\n`, { mode: 0o600 })
  return file
}

async function outlives(t: Test): Promise<void> {
  const { wireguard, routes } = make()
  const name = `slt${randomBytes(4).toString('hex')}`
  t.teardown(async () => {
    await wireguard.deleteDevice(name)
    routes.close()
  })
  const { privateKey, publicKey } = generateWireguardKey()
  const script = `
    import { Rtnetlink } from ${JSON.stringify(new URL('../../kernel/route/rtnetlink.ts', import.meta.url).href)}
    import { WgCommand } from ${JSON.stringify(new URL('../../kernel/wireguard/wg-command.ts', import.meta.url).href)}
    const routes = new Rtnetlink()
    await new WgCommand({ routes }).ensureDevice(${JSON.stringify(name)}, { privateKeyFile: ${JSON.stringify(keyFile(t, privateKey))}, mtu: 1420 })
    routes.close()
  `
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: 20_000,
  })
  t.equal(child.status, 0, child.stderr)
  t.match(await wireguard.read(name), { name, publicKey })
  if ((await wireguard.driver()) === 'kernel') return

  const [pid, ...more] = await daemonsOf(name)
  t.same(more, [])
  for (const fd of ['0', '1', '2']) t.equal(readlinkSync(`/proc/${pid ?? 0}/fd/${fd}`), '/dev/null')
  const files = readdirSync(`/proc/${pid ?? 0}/fd`).map((fd) => linkOf(`/proc/${pid ?? 0}/fd/${fd}`))
  t.same(
    files.filter((file) => file.startsWith('/') && !file.startsWith('/dev/')),
    [],
    'no file of ours is held open',
  )
  t.equal(readlinkSync(`/proc/${pid ?? 0}/cwd`), '/')
  await wireguard.deleteDevice(name)
  t.same(await daemonsOf(name), [], 'and ends with its device')
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

async function twoDevices(t: Test, story: 'right key' | 'wrong key'): Promise<void> {
  const { wireguard, routes } = make()
  t.teardown(() => routes.close())
  const near = generateWireguardKey()
  const far = generateWireguardKey()
  const name = `slt${randomBytes(4).toString('hex')}`
  await withNetns(async (ns) => {
    execFileSync('ip', ['link', 'add', 'wire', 'type', 'veth', 'peer', 'name', 'wire', 'netns', ns.name])
    await routes.addAddress({ device: 'wire', address: '192.0.2.1/24' })
    await routes.setLink('wire', { up: true })
    const believed = story === 'right key' ? near.publicKey : generateWireguardKey().publicKey
    await farSide(t, ns, far.privateKey, believed, await wireguard.driver())

    await wireguard.ensureDevice(name, { privateKeyFile: keyFile(t, near.privateKey), mtu: 1420 })
    await wireguard.sync(name, {
      listenPort: 4500,
      peers: [
        {
          publicKey: far.publicKey,
          endpoint: parseAddressPort('192.0.2.2:4500'),
          allowedIps: ['246.0.0.2/32'],
          keepaliveSeconds: 0,
        },
      ],
    })
    await routes.addAddress({ device: name, address: '246.0.0.1/32' })
    await routes.replaceRoute({
      table: 254,
      destination: '246.0.0.2/32',
      type: 'unicast',
      nextHops: [{ device: name }],
    })
    // A device of user space opens its socket some time later, and a first call to a closed port is repeated only after
    // 5 s.
    const listens = (list: string): boolean => list.includes(':4500 ')
    await eventually(() => listens(execFileSync('ss', ['-Huln'], { encoding: 'utf8' })), { say: 'the near socket' })
    await eventually(async () => listens(await ns.exec('ss', ['-Huln'])), { say: 'the far socket' })
    const ping = spawnSync('ping', ['-n', '-c', '5', '-i', '0.2', '-W', '2', '246.0.0.2'], { encoding: 'utf8' })
    const peer = async () => (await wireguard.read(name))?.peers[0]
    if (story === 'right key') {
      t.match(ping.stdout, / 0% packet loss/)
      const state = await eventually(
        async () => ((await peer())?.lastHandshakeMs === undefined ? undefined : await peer()),
        { say: 'a handshake' },
      )
      t.ok((state.lastHandshakeMs ?? 0) > Date.now() - 60_000)
      t.ok(state.rxBytes >= 5 * 84 && state.txBytes >= 5 * 84, 'bytes are counted')

      await wireguard.sync(name, {
        listenPort: 4500,
        peers: [
          { publicKey: far.publicKey, allowedIps: ['246.0.0.2/32'], keepaliveSeconds: 0 },
          { publicKey: generateWireguardKey().publicKey, allowedIps: ['246.0.0.9/32'], keepaliveSeconds: 0 },
        ],
      })
      const after = (await wireguard.read(name))?.peers.find((item) => item.publicKey === far.publicKey)
      t.equal(after?.lastHandshakeMs, state.lastHandshakeMs, 'the session lives through a sync that adds a peer')
      t.ok((after?.rxBytes ?? 0) >= state.rxBytes)
    } else {
      t.match(ping.stdout, / 100% packet loss/)
      t.equal((await peer())?.lastHandshakeMs, undefined)
      t.equal((await peer())?.rxBytes, 0)
    }
    await wireguard.deleteDevice(name)
    t.equal(await wireguard.read(name), undefined)
    await routes.deleteLink('wire')
  })
}

/** Sets the other end up with the command-line tools alone. */
async function farSide(t: Test, ns: Netns, privateKey: string, peerKey: string, driver: string): Promise<void> {
  const device = `slf${randomBytes(4).toString('hex')}`
  const file = join(t.testdir({}), 'far-key')
  writeFileSync(file, `${privateKey}\n`, { mode: 0o600 })
  await ns.exec('ip', ['address', 'add', '192.0.2.2/24', 'dev', 'wire'])
  await ns.exec('ip', ['link', 'set', 'wire', 'up'])
  if (driver === 'kernel') await ns.exec('ip', ['link', 'add', device, 'type', 'wireguard'])
  else await ns.exec('wireguard-go', [device])
  await ns.exec('wg', [
    'set',
    device,
    'private-key',
    file,
    'listen-port',
    '4500',
    'peer',
    peerKey,
    'allowed-ips',
    '246.0.0.1/32',
  ])
  await ns.exec('ip', ['address', 'add', '246.0.0.2/32', 'dev', device])
  await ns.exec('ip', ['link', 'set', device, 'up', 'mtu', '1420'])
  await ns.exec('ip', ['route', 'add', '246.0.0.1/32', 'dev', device])
}

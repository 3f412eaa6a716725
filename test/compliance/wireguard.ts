/** The suite for every Wireguard driver. It runs on the fake and, in a network namespace, on the wg command. */
import { randomBytes } from 'node:crypto'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { formatAddressPort, parseAddressPort } from '../../model/addresses/address-port.ts'
import type { RouteTable } from '../../kernel/route/route-table.ts'
import { type PeerConfig, type Wireguard, publicKeyOf } from '../../kernel/wireguard/wireguard-device.ts'

export interface WireguardUnderTest {
  readonly wireguard: Wireguard
  /** The route table of the same namespace. */
  readonly routes: RouteTable
}

interface Story extends WireguardUnderTest {
  /** A device name that is used nowhere else. */
  readonly name: string
  /** The path of a file with a private key, and its public key. */
  readonly key: { readonly file: string; readonly publicKey: string }
}

export function wireguardCompliance(t: Test, make: () => WireguardUnderTest | Promise<WireguardUnderTest>): void {
  const story = (title: string, body: (t: Test, story: Story) => Promise<void>): void => {
    t.test(title, async (t) => {
      const under = await make()
      const name = deviceName()
      t.teardown(async () => {
        await under.wireguard.deleteDevice(name)
        under.routes.close()
      })
      await body(t, { ...under, name, key: keyFile(t, under.wireguard) })
    })
  }
  story('a device comes and goes', comesAndGoes)
  story('peers are brought to the configuration', peersStory)
  story('an endpoint that is not named stays', endpoints)
  story('what is refused', refusals)
  story('two devices want one port', portTaken)
  story('a peer takes the place of another', replaced)
  story('keys', keys)
}

async function replaced(t: Test, { wireguard, name, key }: Story): Promise<void> {
  await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1400 })
  const [first, other] = [peer(wireguard, 1, { endpoint: AT }), peer(wireguard, 2)]
  await wireguard.sync(name, { listenPort: 0, peers: [first, other] })
  const second = { ...first, publicKey: wireguard.generateKey().publicKey }
  for (const from of [first, second]) {
    await wireguard.replacePeer(name, from.publicKey, second)
    const peers = new Map((await wireguard.read(name))?.peers.map((one) => [one.publicKey, one]))
    t.strictSame([...peers.keys()].sort(), [second, other].map(({ publicKey }) => publicKey).sort())
    t.strictSame([...(peers.get(second.publicKey)?.allowedIps ?? [])].sort(), [...first.allowedIps].sort())
    t.match(peers.get(second.publicKey)?.endpoint, AT)
    t.equal(peers.get(other.publicKey)?.allowedIps.length, other.allowedIps.length, 'the others are left alone')
  }
  await t.rejects(wireguard.replacePeer(name, second.publicKey, { ...second, publicKey: 'short' }), { code: 'EINVAL' })
  const next = keyFile(t, wireguard)
  const elsewhere = parseAddressPort('127.0.0.1:9')
  const places = [{ publicKey: second.publicKey, endpoint: elsewhere }]
  await wireguard.setKey(name, { privateKeyFile: next.file, places })
  const state = await wireguard.read(name)
  const moved = state?.peers.find(({ publicKey }) => publicKey === second.publicKey)
  t.match(moved?.endpoint, elsewhere)
  t.strictSame([...(moved?.allowedIps ?? [])].sort(), [...first.allowedIps].sort(), 'with its prefixes')
  t.equal(state?.publicKey, next.publicKey)
  t.equal(state?.peers.length, 2, 'peers stay')
  await keyLater(t, { wireguard, name, publicKey: next.publicKey })
}

interface LaterStory extends Pick<Story, 'wireguard' | 'name'> {
  /** The current public key of the device. */
  readonly publicKey: string
}

/** The driver prepares a key change, and sets the key once the promise `after` resolves. */
async function keyLater(t: Test, { wireguard, name, publicKey }: LaterStory): Promise<void> {
  const [peer] = (await wireguard.read(name))?.peers ?? []
  const places = [{ publicKey: peer?.publicKey ?? '', endpoint: AT }]
  const next = keyFile(t, wireguard)
  const refused = Promise.reject(new Error('not now'))
  await t.rejects(wireguard.setKey(name, { privateKeyFile: next.file, places, after: refused }), /not now/)
  t.equal((await wireguard.read(name))?.publicKey, publicKey, 'nothing has changed')

  const said = Promise.withResolvers<undefined>()
  const set = wireguard.setKey(name, { privateKeyFile: next.file, places, after: said.promise })
  t.equal((await wireguard.read(name))?.publicKey, publicKey, 'not yet')
  said.resolve(undefined)
  await set
  const state = await wireguard.read(name)
  t.equal(state?.publicKey, next.publicKey)
  t.match(state?.peers.find((one) => one.publicKey === peer?.publicKey)?.endpoint, AT)
}

const AT = parseAddressPort('192.0.2.1:4500')

const deviceName = (): string => `slt${randomBytes(4).toString('hex')}`

function keyFile(t: Test, wireguard: Wireguard): { readonly file: string; readonly publicKey: string } {
  const { privateKey, publicKey } = wireguard.generateKey()
  const file = join(t.testdir({ key: `${privateKey}\n` }), 'key')
  chmodSync(file, 0o600)
  return { file, publicKey }
}

function peer(wireguard: Wireguard, octet: number, rest: Partial<PeerConfig> = {}): PeerConfig {
  return {
    publicKey: wireguard.generateKey().publicKey,
    allowedIps: [`244.${octet}.0.0/16`, `246.0.${octet}.1/32`, `fd42:${octet}::/48`],
    keepaliveSeconds: 0,
    ...rest,
  }
}

async function comesAndGoes(t: Test, { wireguard, routes, name, key }: Story): Promise<void> {
  t.equal(await wireguard.read(name), undefined)
  await wireguard.deleteDevice(name)
  await t.rejects(wireguard.sync(name, { listenPort: 4500, peers: [] }), { code: 'ENODEV' })

  const state = await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1380 })
  t.match(state, { name, publicKey: key.publicKey, peers: [] })
  t.match(
    (await routes.links()).find((link) => link.name === name),
    { up: true, mtu: 1380 },
  )

  await wireguard.sync(name, { listenPort: 45_871, peers: [peer(wireguard, 1)] })
  await routes.setLink(name, { up: false })
  const again = await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1400 })
  t.match(again, { publicKey: key.publicKey, listenPort: 45_871 }, 'it is kept')
  t.equal(again.peers.length, 1, 'with its peers')
  t.match(
    (await routes.links()).find((link) => link.name === name),
    { up: true, mtu: 1400 },
  )

  const other = keyFile(t, wireguard)
  t.equal(
    (await wireguard.ensureDevice(name, { privateKeyFile: other.file, mtu: 1400 })).publicKey,
    other.publicKey,
    'a new key is taken over',
  )

  await wireguard.deleteDevice(name)
  t.equal(await wireguard.read(name), undefined)
  t.notOk((await routes.links()).some((link) => link.name === name))
  await wireguard.deleteDevice(name)
  await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1380 })
  t.match(await wireguard.read(name), { peers: [] }, 'made anew it is empty')
}

async function peersStory(t: Test, { wireguard, name, key }: Story): Promise<void> {
  await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1380 })
  const a = peer(wireguard, 1, { endpoint: parseAddressPort('192.0.2.1:4500'), keepaliveSeconds: 15 })
  const b = peer(wireguard, 2)
  const c = peer(wireguard, 3)
  const peersNow = async (): Promise<unknown> => (await wireguard.read(name))?.peers
  const asState = (...peers: PeerConfig[]): unknown =>
    peers
      .map((item) => ({ ...item, allowedIps: [...item.allowedIps].sort(), rxBytes: 0, txBytes: 0 }))
      .sort((x, y) => (x.publicKey < y.publicKey ? -1 : 1))

  await wireguard.sync(name, { listenPort: 45_872, peers: [a, b] })
  t.same(await peersNow(), asState(a, b))
  t.equal((await wireguard.read(name))?.listenPort, 45_872)

  await wireguard.sync(name, { listenPort: 45_872, peers: [b, c] })
  t.same(await peersNow(), asState(b, c), 'a peer that is not named goes')

  const wider: PeerConfig = { ...b, allowedIps: ['244.2.0.0/16', 'fd42:2::/48'], keepaliveSeconds: 25 }
  await wireguard.sync(name, { listenPort: 45_873, peers: [wider, c] })
  t.same(await peersNow(), asState(wider, c))
  t.equal((await wireguard.read(name))?.listenPort, 45_873)

  await wireguard.sync(name, { listenPort: 45_873, mark: 0x1073, peers: [wider, c] })
  t.equal((await wireguard.read(name))?.mark, 0x1073)
  await wireguard.sync(name, { listenPort: 45_873, peers: [wider, c] })
  t.equal((await wireguard.read(name))?.mark, undefined, 'a mark that is not named goes')

  const swapped = [
    { ...wider, allowedIps: c.allowedIps },
    { ...c, allowedIps: wider.allowedIps },
  ]
  await wireguard.sync(name, { listenPort: 45_873, peers: swapped })
  t.same(await peersNow(), asState(...swapped), 'prefixes change places')

  const otherForm = { ...wider, allowedIps: ['FD42:0002:0::/48', 'fd42:9:0:0::5/128'] }
  await wireguard.sync(name, { listenPort: 45_873, peers: [otherForm] })
  const listed = asState({ ...wider, allowedIps: ['fd42:2::/48', 'fd42:9::5/128'] })
  t.same(await peersNow(), listed, 'IPv6 in its usual form')
  const taker = { ...c, allowedIps: ['fd42:9::5/128'] }
  await wireguard.sync(name, { listenPort: 45_873, peers: [{ ...wider, allowedIps: ['fd42:2::/48'] }, taker] })
  t.same(await peersNow(), asState({ ...wider, allowedIps: ['fd42:2::/48'] }, taker), 'it belongs to one peer')

  const bare = { ...wider, allowedIps: [], keepaliveSeconds: 0 }
  await wireguard.sync(name, { listenPort: 45_873, peers: [bare] })
  t.same(await peersNow(), asState(bare))
  await wireguard.sync(name, { listenPort: 45_873, peers: [] })
  t.same(await peersNow(), [])
}

async function endpoints(t: Test, { wireguard, name, key }: Story): Promise<void> {
  await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1380 })
  const quiet = peer(wireguard, 1)
  const endpoint = async (): Promise<string | undefined> => {
    const at = (await wireguard.read(name))?.peers[0]?.endpoint
    return at === undefined ? undefined : formatAddressPort(at)
  }
  await wireguard.sync(name, { listenPort: 45_874, peers: [quiet] })
  t.equal(await endpoint(), undefined)
  await wireguard.sync(name, {
    listenPort: 45_874,
    peers: [{ ...quiet, endpoint: parseAddressPort('192.0.2.1:4500') }],
  })
  t.equal(await endpoint(), '192.0.2.1:4500')
  await wireguard.sync(name, { listenPort: 45_874, peers: [{ ...quiet, keepaliveSeconds: 5 }] })
  t.equal(await endpoint(), '192.0.2.1:4500', 'stays, though another thing changed')
  await wireguard.sync(name, {
    listenPort: 45_874,
    peers: [{ ...quiet, endpoint: parseAddressPort('192.0.2.9:4501') }],
  })
  t.equal(await endpoint(), '192.0.2.9:4501')
}

async function refusals(t: Test, { wireguard, name, key }: Story): Promise<void> {
  const init = { privateKeyFile: key.file, mtu: 1380 }
  for (const bad of ['', 'a/b', '../x', '-x', '.x', 'a b', 'a-name-that-is-too-long']) {
    await t.rejects(wireguard.ensureDevice(bad, init), { code: 'EINVAL' }, `device name ${JSON.stringify(bad)}`)
  }
  await wireguard.ensureDevice(name, init)
  await t.rejects(wireguard.ensureDevice(name, { ...init, privateKeyFile: `${key.file}.none` }), { code: 'ENOENT' })
  const broken = `${key.file}.broken`
  writeFileSync(broken, 'not a key\n', { mode: 0o600 })
  await t.rejects(wireguard.ensureDevice(name, { ...init, privateKeyFile: broken }), { code: 'EINVAL' })

  const good = peer(wireguard, 1)
  const rows: readonly (readonly [string, Partial<PeerConfig>])[] = [
    ['a key of the wrong length', { publicKey: 'AAAA' }],
    ['an option for a key', { publicKey: 'remove' }],
    ['an endpoint with port 0', { endpoint: { ...AT, port: 0 } }],
    ['an endpoint with a port that is none', { endpoint: { ...AT, port: 65_536 } }],
    ['an endpoint with half a port', { endpoint: { ...AT, port: 1.5 } }],
    ['a prefix with host bits', { allowedIps: ['244.1.0.1/16'] }],
    ['an IPv6 prefix with host bits', { allowedIps: ['fd42::1/48'] }],
    ['a prefix that is too long', { allowedIps: ['fd42::/129'] }],
    ['a prefix that is none', { allowedIps: ['+0.0.0.0/0'] }],
    ['keepalive below zero', { keepaliveSeconds: -1 }],
    ['keepalive that is no whole number', { keepaliveSeconds: 2.5 }],
  ]
  for (const [say, change] of rows) {
    await t.rejects(
      wireguard.sync(name, { listenPort: 45_875, peers: [{ ...good, ...change }] }),
      { code: 'EINVAL' },
      say,
    )
  }
  await t.rejects(wireguard.sync(name, { listenPort: 65_536, peers: [] }), { code: 'EINVAL' })
  await t.rejects(wireguard.sync(name, { listenPort: 45_875, mark: -1, peers: [] }), { code: 'EINVAL' })
  await t.rejects(
    wireguard.sync(name, { listenPort: 45_875, peers: [good, good] }),
    { code: 'EINVAL' },
    'a peer that is named twice',
  )
  t.match(await wireguard.read(name), { publicKey: key.publicKey, peers: [] }, 'nothing was changed')
  await t.rejects(wireguard.read(name, AbortSignal.abort()), { code: 'EINTR' })
}

async function portTaken(t: Test, { wireguard, name, key }: Story): Promise<void> {
  const second = deviceName()
  t.teardown(() => wireguard.deleteDevice(second))
  await wireguard.ensureDevice(name, { privateKeyFile: key.file, mtu: 1380 })
  await wireguard.ensureDevice(second, { privateKeyFile: keyFile(t, wireguard).file, mtu: 1380 })
  await wireguard.sync(name, { listenPort: 45_876, peers: [] })
  await t.rejects(wireguard.sync(second, { listenPort: 45_876, peers: [] }), { code: 'EADDRINUSE' })
  await wireguard.sync(second, { listenPort: 45_877, peers: [] })
  t.equal((await wireguard.read(second))?.listenPort, 45_877)
}

async function keys(t: Test, { wireguard }: Story): Promise<void> {
  const made = Array.from({ length: 20 }, () => wireguard.generateKey())
  for (const { privateKey, publicKey } of made) {
    t.equal(Buffer.from(privateKey, 'base64').length, 32)
    t.equal(publicKeyOf(privateKey), publicKey)
  }
  t.equal(new Set(made.map((pair) => pair.privateKey)).size, made.length)
  t.ok(['kernel', 'userspace'].includes(await wireguard.driver()))
}

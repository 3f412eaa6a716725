/** What is four times as large costs in proportion: addresses, records, files, tables. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type AddressClaims, planAddresses } from '../../broker/addresses/allocation.ts'
import { formatNft } from '../../kernel/nft/nft-text.ts'
import { parseObjects } from '../../kubeapi/files/user/parse-objects.ts'
import { parseYaml } from '../../kubeapi/yaml.ts'
import { type CidrClaims, ipv6Clashes } from '../../model/addresses/ipv6-claims.ts'
import {
  type Harness,
  Publisher,
  anExport,
  declaration,
  digest,
  join_,
  startBroker,
} from '../broker/support/harness.ts'
import { serviceImport } from '../compliance/cluster-api.ts'
import { FileSite, synced } from '../kubeapi/files/file-site.ts'
import { MOST_GROWTH, growth, processorMs } from '../support/growth.ts'

t.test('who leaves with very many gateways holds up nobody', async (t) => {
  const times = await growth(12_000, async (many) => {
    const harness = await startBroker(t)
    const { peer } = await join_(harness, 'milano')
    await putGateways(harness, many)
    const ms = await processorMs(async () => {
      await harness.tokens.evict({ cluster: 'milano', force: true })
      await harness.log.refresh()
    })
    t.equal(harness.log.count('publicKey'), 64, 'the latest are kept for its return')
    await t.rejects(harness.broker.leave(peer), { code: 'PermissionDenied' })
    return ms
  })
  t.ok(times < MOST_GROWTH, `four times as many gateways take ${times.toFixed(1)} times as long`)
})

async function putGateways({ log }: Harness, many: number): Promise<void> {
  await log.transact((tx) => {
    for (let i = 0; i < many; i += 1) {
      const bytes = Buffer.alloc(32)
      bytes.writeUInt32BE(i)
      const publicKey = bytes.toString('base64')
      const name = `milano.n${i}-lane0`
      const spec = { cluster: 'milano', node: `n${i}`, lane: 0, publicKey, candidates: [], capabilities: [] }
      tx.put('record', `milano/Endpoint//${name}`, { createdAtMs: 0, body: { kind: 'Endpoint', spec }, hash: '00' })
      tx.put('publicKey', publicKey, { cluster: 'milano', endpoints: [name] })
    }
  })
}

t.test('a digest in very many parts costs no more than its entries', async (t) => {
  const times = await growth(20_000, async (size) => {
    const harness = await startBroker(t)
    const { peer } = await join_(harness, 'milano')
    const stream = new Publisher(harness, peer)
    const records = Array.from({ length: size }, (_, i) => anExport(`web-${i}`))
    await stream.send(declaration(records))
    const parts = records.map((record) => digest([record]))
    const ms = await processorMs(async () => {
      for (const part of parts) await stream.send({ ...part, last: false } as typeof part)
      await stream.send(digest([]))
    })
    const needed = stream.replies.find((reply) => reply.t === 'need')
    t.equal(needed?.t === 'need' ? needed.keys.length : 0, records.length)
    return ms
  })
  t.ok(times < MOST_GROWTH, `four times as many parts take ${times.toFixed(1)} times as long`)
})

t.test('a thousand members of sixteen ranges each are planned while others wait', async (t) => {
  const range = (first: number, x: number): string => `${first}.${(x >> 8) & 255}.${x & 255}.0/24`
  const sixteen = (first: number, i: number): string[] => Array.from({ length: 16 }, (_, j) => range(first, i * 16 + j))
  const members = (count: number): AddressClaims[] =>
    Array.from({ length: count }, (_, i) => ({
      ...{ id: `c${i}`, index: 0, podCIDRs: sixteen(10, i), serviceCIDRs: sixteen(11, i) },
      ...{ translated: false, blocks: {}, departed: false },
    }))
  t.equal(planAddresses(members(1000), '244.0.0.0/8').size, 0)
  const times = await growth(1000, (size) => {
    const some = members(size)
    return processorMs(() => planAddresses(some, '244.0.0.0/8'))
  })
  t.ok(times < MOST_GROWTH, `four times as many members take ${times.toFixed(1)} times as long`)
})

t.test('a thousand clusters of sixteen ranges each, all inside that of one', async (t) => {
  const range = (x: number): string => `fd00:${(x >> 16).toString(16)}:${(x & 0xffff).toString(16)}::/48`
  const ipv6 = (index: number, podCIDRs: string[]): CidrClaims => ({
    id: `c${index}`,
    index,
    podCIDRs,
    serviceCIDRs: [],
  })
  const clusters = (count: number): CidrClaims[] =>
    Array.from({ length: count }, (_, i) =>
      ipv6(
        i + 2,
        Array.from({ length: 16 }, (_, j) => range(i * 16 + j)),
      ),
    )
  const withOne = (many: CidrClaims[]): CidrClaims[] => [...many, ipv6(1, ['fd00::/16'])]
  const many = clusters(1000)
  t.equal(ipv6Clashes(many).size, 0)
  t.equal(ipv6Clashes(withOne(many)).size, 1000)
  const times = await growth(1000, (size) => {
    const some = clusters(size)
    return processorMs(() => [some, withOne(some)].map((all) => ipv6Clashes(all)))
  })
  t.ok(times < MOST_GROWTH, `four times as many clusters take ${times.toFixed(1)} times as long`)
})

t.test('many elements are printed in a time in proportion', async (t) => {
  const times = await growth(240_000, (size) => {
    const key = (i: number): string => `245.${i >> 16}.${(i >> 8) & 255}.${i & 255} . tcp . 80`
    const elements = Array.from({ length: size }, (_, i) => ({ key: key(i), value: '10.1.2.3 . 8080' }))
    return processorMs(() =>
      formatNft([{ verb: 'add-elements', table: 'sealane_node', map: 'slot-0', elements }], 'ip'),
    )
  })
  t.ok(times < MOST_GROWTH, `four times as many take ${times.toFixed(1)} times as long`)
})

t.test('a map of many keys', async (t) => {
  const withKeys = (count: number): string => Array.from({ length: count }, (_, i) => `  k${i}: v\n`).join('')
  const readers: [string, (text: string) => unknown][] = [
    ['files', (text) => parseObjects('x.yaml', `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n${text}`)],
    ['everything else', (text) => parseYaml(`a:\n${text}`)],
  ]
  for (const [say, parse] of readers) {
    const times = await growth(16_000, (size) => processorMs(() => parse(withKeys(size))))
    t.ok(times < MOST_GROWTH, `${say}: four times as many keys take ${times.toFixed(1)} times as long`)
  }
})

t.test('of 10,000 mirrored objects, one that changes is read without the others', async (t) => {
  const site = new FileSite(t)
  const folder = join(site.state, 'objects/ServiceImport/shop')
  mkdirSync(folder, { recursive: true })
  for (let i = 0; i < 10_000; i += 1) writeFileSync(join(folder, `s${i}.json`), JSON.stringify(serviceImport(`s${i}`)))
  const [api, other] = [site.open(), site.open()]
  const allMs = await processorMs(() => synced(api, 'ServiceImport'))
  const cache = await synced(api, 'ServiceImport')
  t.equal(cache.list().length, 10_000)
  await synced(other, 'ServiceImport')
  const changesMs = await processorMs(async () => {
    for (let port = 1; port <= 20; port += 1) {
      const seen = new Promise<void>((resolve) => {
        const stop = cache.onChange(() => {
          stop()
          resolve()
        })
      })
      await other.apply(serviceImport('s77', port))
      await seen
    }
  })
  t.ok(changesMs < 5 * allMs, `twenty changes take ${Math.round(changesMs)} ms, to read all ${Math.round(allMs)} ms`)
})

/** The broker handles the keys that gateways announce before they use them. */
import t from 'tap'
import type { MemberRecord } from '../../model/records.ts'
import { Publisher, join_, startBroker } from './support/harness.ts'

t.test("a key that is announced is its owner's, before it is in use and after", async (t) => {
  const harness = await startBroker(t)
  const key = (byte: number): string => Buffer.alloc(32, byte).toString('base64')
  const endpoint = (cluster: string, publicKey: string, nextPublicKey?: string): MemberRecord => {
    const next = nextPublicKey === undefined ? {} : { nextPublicKey }
    const spec = { cluster, node: 'gw', lane: 0, publicKey, ...next, candidates: [], capabilities: [] }
    return { namespace: '', name: `${cluster}.gw-lane0`, body: { kind: 'Endpoint', spec } }
  }
  const milano = new Publisher(harness, (await join_(harness, 'milano')).peer)
  const paris = new Publisher(harness, (await join_(harness, 'paris')).peer)
  for (const stream of [milano, paris]) await stream.publish([])
  const put = async (stream: Publisher, record: MemberRecord): Promise<void> => {
    await stream.put(record)
    await stream.acknowledged()
  }
  await put(milano, endpoint('milano', key(1), key(2)))
  await put(paris, endpoint('paris', key(2)))
  await put(paris, endpoint('paris', key(3), key(2)))
  await put(paris, endpoint('paris', key(3), key(1)))
  t.match(paris.refusals(), [/^spec\.publicKey: /, /^spec\.nextPublicKey: /, /^spec\.nextPublicKey: /])
  await put(milano, endpoint('milano', key(2)))
  t.same(milano.refusals(), [], 'it takes the key that it has announced')
  await put(paris, endpoint('paris', key(3), key(1)))
  t.equal(paris.refusals().length, 4, 'the one of before stays its own')
  await put(paris, endpoint('paris', key(3), key(4)))
  t.equal(paris.refusals().length, 4)
})

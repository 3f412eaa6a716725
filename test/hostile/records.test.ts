/** Keys and records that a member takes from another, or from the platform. */
import { generateKeyPairSync } from 'node:crypto'
import { messageOf } from '../support/failure.ts'
import { attack } from './support/attack.ts'
import { RawMember, endpointRecord, startTarget, verdict } from './support/raw-member.ts'

/** X25519, as `wg pubkey` prints it. */
function wireguardKey(): string {
  const { publicKey } = generateKeyPairSync('x25519')
  return publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('base64')
}

const ENDPOINT = { kind: 'Endpoint', namespace: '', name: 'paris.gw-lane0' }

await attack('key-of-absent-gateway', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const [owner, thief] = [await paris.publish().opened(), await mallory.publish().opened()]
  t.equal(await owner.put(endpointRecord('paris', 'gw', key)), 'ok')
  t.equal(await owner.remove(ENDPOINT), 'ok', 'the gateway is away')
  const refused = /^spec\.publicKey: ".*" is a key of cluster "paris", which stated it first: /
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), refused)
  // Another key on the same node: the one before is still paris's own.
  t.equal(await owner.put(endpointRecord('paris', 'gw', wireguardKey())), 'ok')
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), refused)
  t.equal(await owner.put(endpointRecord('paris', 'gw', key)), 'ok', 'the gateway is back')
})

await attack('key-after-restart', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const owner = await paris.publish().opened()
  await owner.put(endpointRecord('paris', 'gw', key))
  await owner.remove(ENDPOINT)
  await broker.stop()
  await broker.start()
  const thief = await mallory.publish().opened()
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/)
  await broker.tokens((store) => store.evict({ cluster: 'paris', force: true }))
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/, 'evicted is not left')
  const back = await RawMember.join(t, broker, 'paris')
  t.equal(await (await back.publish().opened()).put(endpointRecord('paris', 'gw', key)), 'ok')
  await back.leave()
  t.equal(await thief.put(endpointRecord('mallory', 'm', key)), 'ok', 'who has left keeps nothing')
})

await attack('key-many-kept', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const [owner, thief] = [await paris.publish().opened(), await mallory.publish().opened()]
  await owner.put(endpointRecord('paris', 'gw', key))
  await owner.remove(ENDPOINT)
  const keys = Array.from({ length: 200 }, wireguardKey)
  const answers = await Promise.all(keys.map((one) => thief.put(endpointRecord('mallory', 'm', one))))
  t.same(new Set(answers), new Set(['ok']), 'its own keys come and go')
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/, 'that of paris stays')
  const taken = await Promise.all(keys.map((one, i) => owner.put(endpointRecord('paris', `gw${i}`, one))))
  t.equal(taken.filter((one) => one !== 'ok').length, 65, 'of its own, one in use and 64 former ones are kept')
  t.equal(await verdict(paris.records()), 'ok')
})

await attack('ids-reserved', async (t) => {
  const { broker } = await startTarget(t)
  for (const id of ['broker', 'constructor', 'kube-system', 'sealane', 'sealane-system', 'self']) {
    const refused = new RegExp(`"${id}" is reserved: expected an id that names the cluster`)
    t.match(await verdict(RawMember.join(t, broker, id)), refused, id)
    t.match(await messageOf(broker.token({ cluster: id })), refused, `a token for ${id}`)
  }
  for (const id of ['__proto__', 'hasOwnProperty', 'a.b', ''])
    t.match(await verdict(RawMember.join(t, broker, id)), /^INVALID_ARGUMENT .*expected an RFC 1123 label/, id)
  t.same(await broker.tokens((store) => store.members()), [])
  const left = await broker.tokens(async (store) => (await store.list()).map(({ usesLeft }) => usesLeft))
  t.same(new Set(left), new Set([1]), 'no use of a token is gone')
})

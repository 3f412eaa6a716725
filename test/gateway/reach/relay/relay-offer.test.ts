/** A gateway that offers to relay says so to the others, and serves, only if it can be called. */
import t from 'tap'
import { MILANO, PARIS, PARIS_GW, Stage } from '../../support/stage.ts'

const tables = (stage: Stage): Promise<readonly string[]> => stage.nft.tables('sealane_re')

t.test('a gateway that can be called offers to relay, and serves', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.start({ lanes: [{ lane: 0, publicAddress: '203.0.113.20', relay: true }] })
  await stage.until(() => stage.ownEndpoint()?.spec.capabilities.includes('relay') === true, 'the offer')
  await stage.until(() => JSON.stringify(stage.nft.accepted).includes('sealane_relay'), 'the table of the relay')
  t.strictSame(await tables(stage), ['sealane_relay'])
  await stage.stop()
  t.strictSame(await tables(stage), [], 'nothing is left')
})

t.test('one that has not been asked to does not', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.start({ lanes: [{ lane: 0, publicAddress: '203.0.113.20' }] })
  await stage.until(() => stage.ownEndpoint() !== undefined, 'an Endpoint')
  t.notOk(stage.ownEndpoint()?.spec.capabilities.includes('relay'))
  t.strictSame(await tables(stage), [])
})

t.test('one behind NAT does not either', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.start({ lanes: [{ lane: 0, relay: true }], observedAddress: '203.0.113.77' })
  await stage.until(() => stage.ownEndpoint() !== undefined, 'an Endpoint')
  t.match(stage.ownEndpoint()?.spec.candidates, [{ kind: 'private' }, { kind: 'observed' }])
  t.notOk(stage.ownEndpoint()?.spec.capabilities.includes('relay'))
})

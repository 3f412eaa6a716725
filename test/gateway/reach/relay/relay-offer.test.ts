/** A gateway that offers to relay says so to the others, and serves, only if it can be called. */
import t from 'tap'
import { wireguardRules } from '../../../../gateway/cable/wireguard/plan-device.ts'
import { planEndpoints } from '../../../../gateway/lanes/plan-gateway.ts'
import { MILANO, PARIS, PARIS_GW, Stage } from '../../support/stage.ts'
import { key, world } from '../../support/worlds.ts'

const tables = (stage: Stage): Promise<readonly string[]> => stage.nft.tables('sealane_re')

t.test('a gateway that can be called offers to relay, and serves', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.start({ lanes: [{ lane: 0, publicAddress: '203.0.113.20', relay: true }] })
  await stage.until(() => stage.ownEndpoint()?.spec.capabilities.includes('relay') === true, 'the offer')
  await stage.until(() => JSON.stringify(stage.nft.accepted).includes('sealane_relay'), 'the table of the relay')
  t.strictSame(await tables(stage), ['sealane_relay'])
  await stage.until(() => stage.ownEndpoint()?.spec.capabilities.includes('relay-load-0') === true, 'its load')
  await stage.stop()
  t.strictSame(await tables(stage), ['sealane_relay'], 'packets go on while the process is started again')
  stage.start({ lanes: [{ lane: 0, publicAddress: '203.0.113.20' }] })
  await stage.until(() => !/sealane_re(lay|ach)/.test(stage.kernel()), 'the table of a relay that is none any more')
})

t.test('tables of a run that was killed are removed', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  for (const table of ['sealane_relay', 'sealane_reach']) await stage.nft.run([{ verb: 'add-table', table }])
  stage.start({ lanes: [{ lane: 0, publicAddress: '203.0.113.20' }] })
  await stage.until(() => !/sealane_re(lay|ach)/.test(stage.kernel()), 'no table')
})

t.test('a gateway that is about to leave takes the offer back', async (t) => {
  const lanes = [{ lane: 0, port: 4500, publicAddress: '192.0.2.10', relay: true as const }]
  const devices = new Map([[0, { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers: [] }]])
  const leaving = (leaving: boolean) =>
    planEndpoints(world({ leaving, lanes, devices }), wireguardRules)[0]?.spec.capabilities.filter((one) =>
      one.startsWith('relay'),
    )
  t.same(leaving(false), ['relay', 'relay-shares-ports'])
  t.same(leaving(true), [])
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

import t from 'tap'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { nftCompliance } from '../../../compliance/nft.ts'

nftCompliance(t, () => new FakeNft())
t.test('IPv6', (t) => {
  nftCompliance(t, () => new FakeNft({ family: 'ip6' }), { family: 'ip6' })
  t.end()
})

t.test('prints itself sorted', async (t) => {
  const nft = new FakeNft()
  await nft.run([
    { verb: 'add-table', table: 'sealane_node' },
    {
      verb: 'add-chain',
      table: 'sealane_node',
      chain: 'pre',
      base: { type: 'nat', hook: 'prerouting', priority: -101 },
    },
    {
      verb: 'add-map',
      table: 'sealane_node',
      map: 'remote',
      type: { kind: 'set', key: 'ipv4_addr', flags: ['interval'] },
    },
    {
      verb: 'add-elements',
      table: 'sealane_node',
      map: 'remote',
      elements: [{ key: '244.0.0.0/16' }, { key: '10.2.0.0/15' }],
    },
    { verb: 'add-rule', table: 'sealane_node', chain: 'pre', rule: 'ip daddr @remote accept', comment: 'remote pods' },
  ])
  const want = `table ip sealane_node {
	set remote {
		type ipv4_addr
		flags interval
		elements = { 10.2.0.0/15,
			     244.0.0.0/16 }
	}

	chain pre {
		type nat hook prerouting priority -101; policy accept;
		ip daddr @remote accept comment "remote pods"
	}
}
`
  t.equal(nft.toString(), want)
  t.equal(await nft.listTable('sealane_node'), want)
})

t.test('a failure on order changes nothing', async (t) => {
  const nft = new FakeNft()
  const { KernelError } = await import('../../../../kernel/errors.ts')
  nft.failNext(new KernelError('EBUSY', 'nft', 'on order'))
  await t.rejects(nft.run([{ verb: 'add-table', table: 'a' }]), { code: 'EBUSY' })
  t.same(await nft.tables(''), [])
  await nft.run([{ verb: 'add-table', table: 'a' }])
  t.same(await nft.tables(''), ['a'])
  t.equal(nft.accepted.length, 1)
})

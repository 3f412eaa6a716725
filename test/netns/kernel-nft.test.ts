import t from 'tap'
import { NftCommand } from '../../kernel/nft/nft-command.ts'
import { NftSession } from '../../kernel/nft/nft-session.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { nftCompliance } from '../compliance/nft.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  // Emulation (test/guest) is up to 40 times slower.
  const guest = process.env['SEALANE_GUEST'] === '1'
  const timeoutMs = guest ? 120_000 : 30_000
  const many = guest ? 3_000 : 30_000
  nftCompliance(t, () => new NftCommand({ timeoutMs }), { many })
  t.test('IPv6', (t) => {
    nftCompliance(t, () => new NftCommand({ timeoutMs, family: 'ip6' }), { many, family: 'ip6' })
    t.end()
  })

  t.test('IPv6, in a session', (t) => {
    const sessions: NftSession[] = []
    t.teardown(() => sessions.forEach((session) => session.close()))
    const make = (): NftSession => {
      const made = new NftSession({ family: 'ip6', timeoutMs })
      sessions.push(made)
      return made
    }
    nftCompliance(t, make, { many: 1000, family: 'ip6' })
    t.end()
  })

  t.test('families do not see each other', async (t) => {
    const both = (['ip', 'ip6'] as const).map((family) => new NftCommand({ family }))
    const [ip, ip6] = both as [NftCommand, NftCommand]
    const table = 'sealane_two'
    for (const nft of both) await nft.run([{ verb: 'add-table', table }])
    await ip6.run([{ verb: 'add-chain', table, chain: 'six' }])
    t.equal(await ip.listTable(table), 'table ip sealane_two {\n}\n')
    t.equal(await ip6.listTable(table), 'table ip6 sealane_two {\n\tchain six {\n\t}\n}\n')
    await ip.run([{ verb: 'delete-table', table }])
    t.same([await ip.tables('sealane_two'), await ip6.tables('sealane_two')], [[], [table]])
    await t.rejects(ip.run([{ verb: 'delete-table', table }]), {
      code: 'ENOENT',
      operation: 'nft delete table ip sealane_two',
    })
    await ip6.run([{ verb: 'delete-table', table }])
  })

  t.test('a missing tool is named with its package', async (t) => {
    const nft = new NftCommand({ run: (_tool, args, options) => runCommand('nft-is-not-here', args, options) })
    await t.rejects(nft.tables(''), { code: 'MISSING_TOOL' })
  })

  t.test('an abort ends the tool', async (t) => {
    const aborted = AbortSignal.abort(new Error('stop'))
    await t.rejects(new NftCommand().tables('', aborted), { code: 'EINTR' })
  })
})

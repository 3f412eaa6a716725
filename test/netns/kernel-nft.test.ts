import t from 'tap'
import { NftCommand } from '../../kernel/nft-command.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { nftCompliance } from '../compliance/nft.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  // Emulation (test/guest) is up to 40 times slower.
  const guest = process.env['SEALANE_GUEST'] === '1'
  nftCompliance(t, () => new NftCommand({ timeoutMs: guest ? 120_000 : 30_000 }), guest ? 3_000 : 30_000)

  t.test('a missing tool is named with its package', async (t) => {
    const nft = new NftCommand({ run: (_tool, args, options) => runCommand('nft-is-not-here', args, options) })
    await t.rejects(nft.tables(''), { code: 'MISSING_TOOL' })
  })

  t.test('an abort ends the tool', async (t) => {
    const aborted = AbortSignal.abort(new Error('stop'))
    await t.rejects(new NftCommand().tables('', aborted), { code: 'EINTR' })
  })
})

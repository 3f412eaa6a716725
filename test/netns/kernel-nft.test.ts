import t from 'tap'
import { NftCommand } from '../../kernel/nft-command.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { nftCompliance } from '../compliance/nft.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  nftCompliance(t, () => new NftCommand())

  t.test('a missing tool is named with its package', async (t) => {
    const nft = new NftCommand({ run: (_tool, args, options) => runCommand('nft-is-not-here', args, options) })
    await t.rejects(nft.tables(''), { code: 'MISSING_TOOL' })
  })

  t.test('an abort ends the tool', async (t) => {
    const aborted = AbortSignal.abort(new Error('stop'))
    await t.rejects(new NftCommand().tables('', aborted), { code: 'EINTR' })
  })
})

import t from 'tap'
import { formatPrefix, parsePrefix } from '../../model/ip.ts'

t.test('prefixes print as they were read', async (t) => {
  t.equal(formatPrefix(parsePrefix('10.42.0.0/16')), '10.42.0.0/16')
})

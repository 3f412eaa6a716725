/** A thrown value may be of any type. */
import t from 'tap'
import { errorOf, messageOf } from '../../runtime/errors.ts'

t.test('what is thrown says something, whatever it is', async (t) => {
  t.equal(messageOf(new TypeError('not a number')), 'not a number')
  t.equal(messageOf('plain text'), 'plain text')
  t.equal(messageOf(undefined), 'undefined')
  const error = new RangeError('too long')
  t.equal(errorOf(error), error, 'an error stays itself')
  t.match(errorOf(404), { message: '404' })
})

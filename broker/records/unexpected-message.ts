/** A message that does not belong where it came in a Publish stream. */
import { RefusedError } from '../../protocol/broker-api.ts'

export function unexpected(what: string, why: string): RefusedError {
  return new RefusedError('UnexpectedMessage', what, `${what}: ${why}`)
}

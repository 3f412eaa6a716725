/** The certificate authority of a clusterset, its rotation, and the checks of member certificates. */
export { CA_CERTIFICATE, CA_KEY, caFromPem, isAuthorityFile, secondFiles, writeSecond } from './authority-files.ts'
export { type SharedKeys, knownAuthority } from './authority-keys.ts'
export { AuthorityUpkeep } from './authority-upkeep.ts'
export { CertificateAuthority } from './certificate-authority.ts'
export {
  CertificateUse,
  isOfMembership,
  isUnknownHere,
  requireMember,
  useCertificate,
  useToRenew,
} from './certificate-use.ts'
export { CommandSigner, DEFAULT_SIGNER_TIMEOUT_MS } from './command-signer.ts'
export { authoritiesMessage, bundleOf, signingAuthority } from './plan-rotation.ts'
export {
  type StepDone,
  abortRotation,
  announce,
  authorityStatus,
  finishRotation,
  requireAuthority,
} from './rotation.ts'
export { readSharedFiles, shareFiles, sharedKeys } from './shared-keys.ts'
export { normalSerial } from './succession.ts'

/** The grammar of records: one form for each field, which decoder, admission and importers share. Pure. */
export {
  type FormOf,
  type FormProblem,
  type ListForm,
  type NumberForm,
  type PairsForm,
  type TextForm,
  type WordForm,
  countProblem,
  formProblem,
  pairBytes,
  quote,
  textProblem,
} from './forms.ts'
export {
  KEY_FORMS,
  MAX_ADDRESS_TEXT,
  MAX_SLICE_ADDRESSES,
  PARTS,
  RECORD_FORMS,
  SLICE_ADDRESSES,
  plainProblem,
  sliceForm,
} from './record-forms.ts'
export { MAX_NAME, addressIn, isPublicKey } from '../values/values.ts'

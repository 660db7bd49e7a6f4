"""ISO 639: map three-letter and withdrawn language codes to current two-letter ones (contract 3).

BCP 47 uses a language's shortest code, so `eng` means `en`; the IANA registry lists the code
that replaces a withdrawn one.
"""

from typing import Final

# Each entry is the ISO 639-1 code, then the three-letter code; one in nine entries has a
# bibliographic code as well.
_TABLE: Final = """
aaaar ababk aeave afafr akaka amamh anarg arara asasm avava ayaym azaze babak bebel bgbul bibis
bmbam bnben bobodtib brbre bsbos cacat ceche chcha cocos crcre cscescze cuchu cvchv cycymwel dadan
dedeuger dvdiv dzdzo eeewe elellgre eneng eoepo esspa etest eubaqeus fafasper ffful fifin fjfij
fofao frfrafre fyfry gagle gdgla glglg gngrn guguj gvglv hahau heheb hihin hohmo hrhrv hthat huhun
hyarmhye hzher iaina idind ieile igibo iiiii ikipk ioido isiceisl itita iuiku jajpn jvjav kageokat
kgkon kikik kjkua kkkaz klkal kmkhm knkan kokor krkau kskas kukur kvkom kwcor kykir lalat lbltz
lglug lilim lnlin lolao ltlit lulub lvlav mgmlg mhmah mimaomri mkmacmkd mlmal mnmon mrmar msmaymsa
mtmlt myburmya nanau nbnob ndnde nenep ngndo nldutnld nnnno nonor nrnbl nvnav nynya ococi ojoji
omorm orori ososs papan pipli plpol pspus ptpor quque rmroh rnrun roronrum rurus rwkin sasan scsrd
sdsnd sesme sgsag shhbs sisin skslkslo slslv smsmo snsna sosom sqalbsqi srsrp ssssw stsot susun
svswe swswa tatam tetel tgtgk ththa titir tktuk tltgl tntsn toton trtur tstso tttat twtwi tytah
uguig ukukr ururd uzuzb veven vivie vovol wawln wowol xhxho yiyid yoyor zazha zhchizho zuzul
"""

_WITHDRAWN: Final = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "mol": "ro"}

CURRENT_CODES: Final = _WITHDRAWN | {
    entry[start : start + 3]: entry[:2]
    for entry in _TABLE.split()
    for start in range(2, len(entry), 3)
}
"""Two-letter codes by three-letter or withdrawn code, in lower case."""

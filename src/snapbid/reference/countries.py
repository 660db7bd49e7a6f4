"""ISO 3166-1 country codes: alpha-2 to alpha-3 and back (contract 3, `country`).

Only officially assigned codes are countries: not reserved ones ("UK", "EU"), nor user-assigned ones
("XK", "ZZ").
"""

# Every entry is the alpha-2 code followed by the alpha-3 code: ISO 3166-1, 249 countries.
_TABLE = """
ADAND AEARE AFAFG AGATG AIAIA ALALB AMARM AOAGO AQATA ARARG ASASM ATAUT AUAUS AWABW AXALA AZAZE
BABIH BBBRB BDBGD BEBEL BFBFA BGBGR BHBHR BIBDI BJBEN BLBLM BMBMU BNBRN BOBOL BQBES BRBRA BSBHS
BTBTN BVBVT BWBWA BYBLR BZBLZ CACAN CCCCK CDCOD CFCAF CGCOG CHCHE CICIV CKCOK CLCHL CMCMR CNCHN
COCOL CRCRI CUCUB CVCPV CWCUW CXCXR CYCYP CZCZE DEDEU DJDJI DKDNK DMDMA DODOM DZDZA ECECU EEEST
EGEGY EHESH ERERI ESESP ETETH FIFIN FJFJI FKFLK FMFSM FOFRO FRFRA GAGAB GBGBR GDGRD GEGEO GFGUF
GGGGY GHGHA GIGIB GLGRL GMGMB GNGIN GPGLP GQGNQ GRGRC GSSGS GTGTM GUGUM GWGNB GYGUY HKHKG HMHMD
HNHND HRHRV HTHTI HUHUN IDIDN IEIRL ILISR IMIMN ININD IOIOT IQIRQ IRIRN ISISL ITITA JEJEY JMJAM
JOJOR JPJPN KEKEN KGKGZ KHKHM KIKIR KMCOM KNKNA KPPRK KRKOR KWKWT KYCYM KZKAZ LALAO LBLBN LCLCA
LILIE LKLKA LRLBR LSLSO LTLTU LULUX LVLVA LYLBY MAMAR MCMCO MDMDA MEMNE MFMAF MGMDG MHMHL MKMKD
MLMLI MMMMR MNMNG MOMAC MPMNP MQMTQ MRMRT MSMSR MTMLT MUMUS MVMDV MWMWI MXMEX MYMYS MZMOZ NANAM
NCNCL NENER NFNFK NGNGA NINIC NLNLD NONOR NPNPL NRNRU NUNIU NZNZL OMOMN PAPAN PEPER PFPYF PGPNG
PHPHL PKPAK PLPOL PMSPM PNPCN PRPRI PSPSE PTPRT PWPLW PYPRY QAQAT REREU ROROU RSSRB RURUS RWRWA
SASAU SBSLB SCSYC SDSDN SESWE SGSGP SHSHN SISVN SJSJM SKSVK SLSLE SMSMR SNSEN SOSOM SRSUR SSSSD
STSTP SVSLV SXSXM SYSYR SZSWZ TCTCA TDTCD TFATF TGTGO THTHA TJTJK TKTKL TLTLS TMTKM TNTUN TOTON
TRTUR TTTTO TVTUV TWTWN TZTZA UAUKR UGUGA UMUMI USUSA UYURY UZUZB VAVAT VCVCT VEVEN VGVGB VIVIR
VNVNM VUVUT WFWLF WSWSM YEYEM YTMYT ZAZAF ZMZMB ZWZWE
"""

_ALPHA3: dict[str, str] = {}
_ALPHA2: dict[str, str] = {}
for _entry in _TABLE.split():
    _two, _three = _entry[:2], _entry[2:]
    # Both letter cases are listed, to make the usual lookup a single dictionary access.
    for _code in (_two, _three, _two.lower(), _three.lower()):
        _ALPHA3[_code] = _three
        _ALPHA2[_code] = _two

ALPHA3: frozenset[str] = frozenset(_ALPHA3.values())
"""The 249 alpha-3 codes, upper case."""


def alpha3(code: str) -> str | None:
    """Convert an alpha-2 or alpha-3 code, in any letter case, to alpha-3; None if unknown."""
    country = _ALPHA3.get(code)
    if country is not None or len(code) > 3:
        return country
    return _ALPHA3.get(code.upper()) if code.isascii() else None


def alpha2(code: str) -> str | None:
    """Convert an alpha-2 or alpha-3 code, in any letter case, to alpha-2; None if unknown."""
    country = _ALPHA2.get(code)
    if country is not None or len(code) > 3:
        return country
    return _ALPHA2.get(code.upper()) if code.isascii() else None
